/**
 * Rows about other sandboxes on the same host, if they are installed: gVisor (`runsc`) and containers (`crun`, weaker
 * isolation). Same root filesystem, same command, each from the call to the first byte of output.
 */
import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { randomId } from "@vivarium/kit/id";
import { Client } from "@vivarium/sdk";
import { run } from "../../packages/node/src/host/run.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import type { ServiceFacts } from "../support/service.ts";
import { percentile, type Row, repeated, row, timed } from "./samples.ts";

const AT_ONCE = 8;
const PRINT = ["/usr/bin/env", "python3", "-c", "print(1)"];

/** crun refuses a host with both versions of cgroups, even if it should use none: cgroups are hidden from it. */
const HIDE_CGROUPS = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"';
const hiding = existsSync("/sys/fs/cgroup/unified")
  ? ["unshare", "--mount", "sh", "-c", HIDE_CGROUPS, "-"]
  : [];

/** How each of them runs on a host without KVM. */
const PEERS = [
  { name: "runsc", command: ["runsc", "--network=none", "--ignore-cgroups", "--platform=ptrace"] },
  { name: "crun", command: [...hiding, "crun", "--cgroup-manager=disabled"] },
];

export async function peerRows(facts: ServiceFacts, baseline: Loadable, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const ours = await sequentialAndAtOnce(n, () =>
    timed(() => client.run({ language: "python", code: "print(1)" })),
  );
  const rows = rowsOf("stateless run", ours);
  for (const { name, command } of PEERS) {
    const version = await versionOf(name);
    if (version === undefined) {
      console.log(`peers: ${name} is not installed, its rows are skipped (Debian: apt-get install ${name})`);
      continue;
    }
    try {
      const theirs = await inBundle(baseline, (bundle) =>
        sequentialAndAtOnce(n, () => firstByte([...command, "run", "--bundle", bundle])),
      );
      const over = (percentile(ours.sequential, 50) / percentile(theirs.sequential, 50)).toFixed(2);
      rows.push(...rowsOf(version, theirs, `a stateless run takes ${over} × as long`));
    } catch (error) {
      console.log(`peers: ${name} does not run here, its rows are skipped: ${(error as Error).message}`);
    }
  }
  return rows;
}

interface Times {
  sequential: number[];
  atOnce: number[];
}

async function sequentialAndAtOnce(n: number, probe: () => Promise<number>): Promise<Times> {
  const sequential = await repeated(n, probe);
  return { sequential, atOnce: await Promise.all(Array.from({ length: AT_ONCE }, probe)) };
}

function rowsOf(who: string, { sequential, atOnce }: Times, note?: string): Row[] {
  return [
    row(`${who}: print(1) in Python, one after the other`, "ms", sequential, note),
    row(`${who}: the same, ${AT_ONCE} at once`, "ms", atOnce),
  ];
}

async function versionOf(name: string): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(name, ["--version"]);
    return stdout.split("\n")[0]?.replace(/ version /, " ");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The root filesystem of our own guests, mounted read-only, as an OCI bundle. */
async function inBundle(baseline: Loadable, work: (bundle: string) => Promise<Times>): Promise<Times> {
  const bundle = await mkdtemp(join(tmpdir(), "viv-peer-"));
  const root = join(bundle, "root");
  await mkdir(root);
  await writeFile(join(bundle, "config.json"), JSON.stringify(oci(root)));
  const image = await realpath(join(baseline.dir, "base.raw"));
  await run("mount", ["-o", "loop,ro,noload", image, root]);
  try {
    return await work(bundle);
  } finally {
    await run("umount", [root]);
    await rm(bundle, { recursive: true });
  }
}

function oci(root: string) {
  const mount = (destination: string, type: string, options: string[] = []) => ({
    ...{ destination, type, source: type, options },
  });
  return {
    ociVersion: "1.0.2",
    process: {
      user: { uid: 1000, gid: 1000 },
      args: PRINT,
      env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
      cwd: "/",
      noNewPrivileges: true,
    },
    root: { path: root, readonly: true },
    hostname: "bench",
    mounts: [mount("/proc", "proc"), mount("/dev", "tmpfs", ["mode=755"]), mount("/tmp", "tmpfs")],
    linux: { namespaces: ["pid", "mount", "ipc", "uts", "network"].map((type) => ({ type })) },
  };
}

async function firstByte([command = "", ...args]: string[]): Promise<number> {
  const startedAt = performance.now();
  const child = spawn(command, [...args, `bench-${randomId(8)}`], { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  let firstMs = Number.NaN;
  child.stdout.once("data", () => {
    firstMs = performance.now() - startedAt;
  });
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said += chunk));
  const code = await new Promise((resolve, reject) => child.once("error", reject).once("close", resolve));
  if (code === 0 && said.startsWith("1\n")) return firstMs;
  throw new Error(`${command} ended with ${code} and said: ${said.slice(0, 500)}`);
}
