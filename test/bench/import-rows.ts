/** Rows about an import of an image from a registry, beside `skopeo copy` and `umoci unpack` of the same one. */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { sleep } from "@vivarium/kit/clock";
import { Client } from "@vivarium/sdk";
import { run } from "../../packages/node/src/host/run.ts";
import type { ServiceFacts } from "../support/service.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const TEMPLATE = "bench";
const IMPORT_LIMIT_MS = 40 * 60_000;
/** Parts of the image that a builder adds nothing to. */
const SAME = ["srv", "usr"];

export interface ImportEffort {
  mib: number;
  rounds: number;
}

export interface Imported {
  /** Reference of the image, in a registry that the service and skopeo reach by the same way. */
  image: string;
  /** File of the certificates that are to be trusted. */
  trusted: string;
  /** Folder of skopeo and umoci. */
  tools: string;
}

export async function importRows(
  facts: ServiceFacts,
  imported: Imported,
  { mib, rounds }: ImportEffort,
): Promise<Row[]> {
  const byHand: ByHand[] = [];
  const ours: Import[] = [];
  // Alternating, so that a noisy minute of the host affects both alike.
  for (let i = 0; i < rounds; i++) {
    const folder = join(facts.dataDir, "by-hand");
    mkdirSync(folder);
    byHand.push(await unpackByHand(imported, folder));
    ours.push(
      await importOnce(facts, imported.image, (disk) => requireSame(join(folder, "bundle/rootfs"), disk)),
    );
    rmSync(folder, { recursive: true });
  }
  const both = byHand.map(({ copyMs, unpackMs }) => copyMs + unpackMs);
  const toDisk = ours.map(({ diskMs }) => diskMs);
  const over = (percentile(toDisk, 50) / percentile(both, 50)).toFixed(2);
  const of = `image of ${mib} MiB`;
  return [
    row(`${of}: skopeo copy and umoci unpack, synced`, "ms", both),
    row(
      "  of it skopeo copy",
      "ms",
      byHand.map(({ copyMs }) => copyMs),
    ),
    row(`${of}: imported, to its verified disk`, "ms", toDisk, `${over} × skopeo and umoci`),
    row(
      "  of it the pull",
      "ms",
      ours.map(({ pullMs }) => pullMs),
    ),
    row(
      `${of}: imported, to a template that is ready`,
      "ms",
      ours.map(({ readyMs }) => readyMs),
    ),
  ];
}

interface ByHand {
  copyMs: number;
  unpackMs: number;
}

async function unpackByHand({ image, trusted, tools }: Imported, folder: string): Promise<ByHand> {
  const layout = join(folder, "layout");
  const bundle = join(folder, "bundle");
  const env = {
    PATH: process.env.PATH,
    HOME: folder,
    SSL_CERT_FILE: trusted,
    LD_LIBRARY_PATH: join(tools, "lib"),
  };
  const tool = (name: string, ...args: string[]) => {
    return promisify(execFile)(join(tools, name), args, { env });
  };
  const copyMs = await timed(() =>
    tool("skopeo", "copy", "--insecure-policy", `docker://${image}`, `oci:${layout}:bench`),
  );
  const unpackMs = await timed(async () => {
    await tool("umoci", "unpack", "--image", `${layout}:bench`, bundle);
    await run("sync", ["-f", bundle]);
  });
  return { copyMs, unpackMs };
}

interface Import {
  pullMs: number;
  diskMs: number;
  readyMs: number;
}

/** `check` gets the template's disk. */
async function importOnce(
  { url, apiKey, dataDir }: ServiceFacts,
  image: string,
  check: (disk: string) => Promise<void>,
): Promise<Import> {
  const client = new Client({ url, apiKey });
  const builds = join(dataDir, "pool/b");
  const before = new Set(existsSync(builds) ? readdirSync(builds) : []);
  const startedAt = Date.now();
  const { name } = await client.templates.import({ name: TEMPLATE, from_image: image });
  await untilReady(client, name);
  const { lines } = await client.templates.log(name);
  const [made, ...more] = readdirSync(builds).filter((id) => !before.has(id));
  if (made === undefined || more.length > 0)
    throw new Error(`one build was expected in ${builds}, found ${[made, ...more].join(", ")}`);
  await check(join(builds, made, "root.ext4"));
  await client.templates.delete(name);
  while (existsSync(join(builds, made))) await sleep(100);
  const until = (stage: string) => {
    const line = lines.find(({ text }) => text.startsWith(stage));
    if (!line) throw new Error(`the log of the import has no line "${stage}"`);
    return Date.parse(line.at) - startedAt;
  };
  return { pullMs: until("unpack:"), diskMs: until("bake:"), readyMs: until("ready") };
}

async function untilReady(client: Client, name: string): Promise<void> {
  const deadline = Date.now() + IMPORT_LIMIT_MS;
  for (;;) {
    const { status, build_error } = await client.templates.get(name);
    if (status === "ready") return;
    if (status === "failed" || Date.now() > deadline)
      throw new Error(`the import is ${status}: ${JSON.stringify(build_error)}`);
    await sleep(200);
  }
}

/** Throws unless both trees have the same names with the same bytes. */
async function requireSame(root: string, disk: string): Promise<void> {
  const mounted = join(root, "../mounted");
  mkdirSync(mounted, { recursive: true });
  await run("mount", ["-o", "loop,ro,noload", disk, mounted]);
  try {
    for (const part of SAME)
      await run("diff", ["-r", "--no-dereference", join(root, part), join(mounted, part)]);
  } finally {
    await run("umount", [mounted]);
  }
}
