/**
 * Container images are unpacked by builders on real machines: what they become, and that neither hostile layers nor builds
 * that end early leave anything on the host. The disks are read with debugfs, and never mounted.
 */
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { randomId } from "@vivarium/kit/id";
import { MIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { BuilderDeps } from "../../packages/node/src/builds/builder.ts";
import { hashDisk } from "../../packages/node/src/builds/disk-hash.ts";
import type { LayerFile } from "../../packages/node/src/builds/layer-disk.ts";
import {
  type UnpackedImage,
  type UnpackInput,
  type UnpackingProgress,
  unpackImage,
} from "../../packages/node/src/builds/unpack-image.ts";
import { openCgroups } from "../../packages/node/src/host/cgroup.ts";
import { claimSlots } from "../../packages/node/src/host/claims.ts";
import { discardSlot } from "../../packages/node/src/host/discard-slot.ts";
import { chooseAccelerators } from "../../packages/node/src/host/kvm.ts";
import { prepareQemuRoot } from "../../packages/node/src/host/qemu-root.ts";
import { slotsOf } from "../../packages/node/src/host/slots.ts";
import { eventually } from "../support/eventually.ts";
import { hostProcesses } from "../support/host-processes.ts";
import { jailFaults } from "../support/jail-facts.ts";
import { DiskReader, makeLayer, packLayer, sha256 } from "../support/layers.ts";
import { machineTraces, slotNumbers } from "../support/machine-traces.ts";
import { IMAGES, POOL } from "../support/service.ts";

const LIMIT_MS = 400_000 * SLOWNESS;
const dataDir = join(POOL, "tests", `${randomId(8)}-builder`);
const outside = join(dataDir, "outside");
const NOTHING = { processes: 0, uids: 0, mounts: 0, namespaces: 0, slots: 0, netns: 0, links: 0 };

let deps: BuilderDeps;
let releaseSlots: () => Promise<void>;

beforeAll(async () => {
  mkdirSync(outside, { recursive: true });
  writeFileSync(join(outside, "file"), "outside");
  releaseSlots = await claimSlots(dataDir);
  deps = {
    qemu: await prepareQemuRoot(dataDir),
    cgroups: await openCgroups(),
    imagesDir: IMAGES,
    owner: dataDir,
    slots: 4096,
    accelerators: chooseAccelerators("auto"),
    cpuModel: "host",
  };
}, LIMIT_MS);
afterAll(async () => {
  await releaseSlots?.();
  rmSync(dataDir, { recursive: true, force: true });
});

/** A folder for a build, and one for its layers. */
function places(): { folder: string; made: string } {
  const [folder, made] = [join(dataDir, "pool/b", randomId(8)), join(dataDir, "made", randomId(8))];
  mkdirSync(folder, { recursive: true, mode: 0o711 });
  mkdirSync(made, { recursive: true });
  return { folder, made };
}

async function unpack(input: UnpackInput): Promise<{ image: UnpackedImage; disk: DiskReader }> {
  const image = await unpackImage(deps, input);
  const disk = new DiskReader(image.path);
  disk.check();
  return { image, disk };
}

/** Everything of a build that ended is gone: its machine, and what was in its folder. */
function expectNothingLeft(folder: string): void {
  expect(machineTraces(dataDir)).toMatchObject(NOTHING);
  expect(readdirSync(folder)).toEqual([]);
  expect(readdirSync(outside)).toEqual(["file"]);
  expect(readFileSync(join(outside, "file"), "utf8")).toBe("outside");
}

/** The QEMU of the only builder. */
function findBuilder() {
  const [slot = 0] = slotNumbers(dataDir);
  return hostProcesses().find(({ uid }) => uid === 700_000 + slot);
}

function distribution(made: string): LayerFile[] {
  const base = makeLayer(made, {
    name: "base",
    compression: "gzip",
    options: ["--format=gnu"],
    fill: (dir) => {
      for (const name of ["usr/bin", "usr/lib", "etc", "var/cache/apt", "home/old"])
        mkdirSync(join(dir, name), { recursive: true });
      symlinkSync("usr/bin", join(dir, "bin"));
      symlinkSync("/usr/lib", join(dir, "lib"));
      writeFileSync(join(dir, "usr/bin/sh"), "shell".repeat(50_000));
      linkSync(join(dir, "usr/bin/sh"), join(dir, "usr/bin/dash"));
      writeFileSync(join(dir, "usr/bin/su"), "su");
      chownSync(join(dir, "usr/bin/su"), 0, 42);
      chmodSync(join(dir, "usr/bin/su"), 0o4755);
      writeFileSync(join(dir, "etc/os-release"), "ID=old\n");
      writeFileSync(join(dir, "var/cache/apt/pkgcache"), "cache");
      writeFileSync(join(dir, "home/old/file"), "old");
      utimesSync(join(dir, "etc/os-release"), 1_234_567_890, 1_234_567_890);
      execFileSync("mknod", [join(dir, "etc/null"), "c", "1", "3"]);
      execFileSync("mkfifo", [join(dir, "etc/fifo")]);
    },
  });
  const packages = makeLayer(made, {
    name: "packages",
    compression: "zstd",
    options: ["--format=posix", "--sparse", "--xattrs", "--xattrs-include=*"],
    fill: (dir) => {
      for (const name of ["bin", "lib", "etc", "home/old", "var/cache"])
        mkdirSync(join(dir, name), { recursive: true });
      writeFileSync(join(dir, "etc/os-release"), "ID=new\n");
      writeFileSync(join(dir, `lib/${"long-name-".repeat(20)}`), "long");
      writeFileSync(join(dir, "lib/sparse"), "begin");
      truncateSync(join(dir, "lib/sparse"), 64 * MIB);
      writeFileSync(join(dir, "bin/ping"), "ping");
      execFileSync("setcap", ["cap_net_raw+ep", join(dir, "bin/ping")]);
      writeFileSync(join(dir, "var/cache/.wh.apt"), "");
      writeFileSync(join(dir, "home/old/.wh..wh..opq"), "");
      writeFileSync(join(dir, "home/old/new"), "new");
    },
    // As engines have it: the entries of linked directories come through the links.
  });
  const app = makeLayer(made, {
    name: "app",
    fill: (dir) => {
      mkdirSync(join(dir, "srv"));
      writeFileSync(join(dir, "srv/app"), "app");
      chownSync(join(dir, "srv/app"), 1000, 1000);
    },
  });
  return [base, packages, app];
}

test(
  "an image of three layers becomes a consistent disk with what a container engine would show",
  async () => {
    const { folder, made } = places();
    const layers = distribution(made);
    const seen: UnpackingProgress[] = [];
    const faults: string[] = [];
    let links = "";
    const onProgress = (progress: UnpackingProgress) => {
      if (seen.length === 0) {
        const qemu = findBuilder();
        faults.push(...jailFaults(qemu?.pid ?? 0));
        links = readFileSync(`/proc/${qemu?.pid}/net/dev`, "utf8");
        if (existsSync(`/proc/${qemu?.pid}/root/dev/net/tun`)) faults.push("a network device");
      }
      seen.push(progress);
    };
    const { image, disk } = await unpack({ layers, folder, onProgress });

    expect(readdirSync(folder)).toEqual(["root.ext4"]);
    expect(machineTraces(dataDir)).toMatchObject(NOTHING);
    expect(faults).toEqual([]);
    expect(links.match(/^\s*\w+:/gm)?.map((link) => link.trim())).toEqual(["lo:"]);
    expect(seen.at(-1)?.totalBytes).toBe(layers.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    expect(image).toMatchObject({ sizeBytes: 8 * 1024 * MIB, totals: { skipped: 2 } });
    expect(image.storedBytes).toBeLessThan(64 * MIB);
    expect(image.hash).toBe(await hashDisk(image.path));

    expect(disk.names("/")).toEqual([".vivarium", "bin", "etc", "home", "lib", "srv", "usr", "var"]);
    // The upper layer has directories in their place, as tar and engines read its entries.
    expect([disk.look("/bin")?.type, disk.look("/lib")?.type]).toEqual(["directory", "directory"]);
    expect(disk.text("/usr/bin/sh")).toBe("shell".repeat(50_000));
    expect(disk.look("/usr/bin/sh")).toMatchObject({ links: 2, inode: disk.look("/usr/bin/dash")?.inode });
    expect(disk.look("/usr/bin/su")).toMatchObject({ mode: 0o4755, user: 0, group: 42 });
    expect(disk.look("/srv/app")).toMatchObject({ user: 1000, group: 1000, size: 3 });
    expect(disk.text("/etc/os-release")).toBe("ID=new\n");
    expect(disk.names("/etc")).toEqual(["os-release", "ssl"]);
    // The distribution's shell is replaced by files that cannot be run.
    expect(image.totals.given).toEqual(["shell", "certificates"]);
    expect(disk.look("/.vivarium/sh")).toMatchObject({ mode: 0o755, user: 0, group: 0 });
    expect(disk.look("/bin/sh")).toMatchObject({ type: "symlink", target: "/.vivarium/sh" });
    expect(disk.text("/etc/ssl/certs/ca-certificates.crt")).toContain("-----BEGIN CERTIFICATE-----");
    expect(disk.names("/var/cache")).toEqual([]);
    expect(disk.names("/home/old")).toEqual(["new"]);
    expect(disk.text(`/lib/${"long-name-".repeat(20)}`)).toBe("long");
    expect(disk.look("/lib/sparse")).toMatchObject({ size: 64 * MIB });
    expect(disk.look("/lib/sparse")?.blocks).toBeLessThan(2048);
    expect(disk.look("/bin/ping")?.attributes).toContain("security.capability");
  },
  LIMIT_MS,
);

test(
  "layers that climb, link and remove outwards change nothing outside of their image",
  async () => {
    const { folder, made } = places();
    const climbing = "../".repeat(20);
    const links = makeLayer(made, {
      name: "links",
      fill: (dir) => {
        symlinkSync(outside, join(dir, "absolute"));
        symlinkSync(`${climbing}${outside}`, join(dir, "climbing"));
        symlinkSync("/proc/1/root", join(dir, "proc"));
        symlinkSync("/dev/vda", join(dir, "device"));
        symlinkSync("loop", join(dir, "loop"));
        mkdirSync(join(dir, "keep"));
      },
    });
    const through = makeLayer(made, {
      name: "through",
      fill: (dir) => {
        for (const name of ["absolute", "climbing", "proc", "loop"]) {
          mkdirSync(join(dir, "x", name), { recursive: true });
          writeFileSync(join(dir, "x", name, "file"), name);
          writeFileSync(join(dir, "x", name, ".wh.other"), "");
        }
        writeFileSync(join(dir, "x/device"), "not a device");
      },
      // Files alone, so that the directories above them are those links.
      options: [
        "--no-recursion",
        "--transform=s,^[.]/x/,,",
        ...filesOf(["absolute", "climbing", "proc", "loop"]),
      ],
    });
    const whiteouts = makeLayer(made, {
      name: "whiteouts",
      fill: (dir) => {
        mkdirSync(join(dir, "x/absolute"), { recursive: true });
        writeFileSync(join(dir, "x/absolute/.wh..wh..opq"), "");
      },
      options: ["--no-recursion", "--transform=s,^[.]/x/,,", "./x/absolute/.wh..wh..opq"],
    });
    const { disk } = await unpack({ layers: [links, through, whiteouts], folder });
    expect(readdirSync(outside)).toEqual(["file"]);
    expect(readFileSync(join(outside, "file"), "utf8")).toBe("outside");
    expect(disk.names("/")).toContain("keep");
    expect(disk.text("/device")).toBe("not a device");
    for (const name of ["climbing", "proc", "loop"]) expect(disk.text(`/${name}/file`)).toBe(name);
    expect(disk.names("/absolute")).toEqual([]);
    expect(machineTraces(dataDir)).toMatchObject(NOTHING);
  },
  LIMIT_MS,
);

function filesOf(names: string[]): string[] {
  return [...names.flatMap((name) => [`./x/${name}/file`, `./x/${name}/.wh.other`]), "./x/device"];
}

test(
  "an image that is hostile, too large or not what it says fails with its word, and leaves nothing",
  async () => {
    const { folder, made } = places();
    const file = (name: string) => (dir: string) => writeFileSync(join(dir, name), "content");
    const good = makeLayer(made, { name: "good", compression: "gzip", fill: file("good") });
    const climbs = makeLayer(made, {
      name: "climbs",
      fill: file("x"),
      options: ["-P", "--transform=s,^[.]/x,../../../../etc/x,"],
    });
    const bomb = packLayer(made, "bomb", Buffer.alloc(300 * MIB), "gzip");
    const trailing = { ...good, path: join(made, "trailing"), sizeBytes: good.sizeBytes + 4 };
    writeFileSync(trailing.path, Buffer.concat([readFileSync(good.path), Buffer.from("more")]));
    const cases: [string, LayerFile[], string][] = [
      ["a path that climbs", [good, climbs], "image_invalid"],
      ["another content", [{ ...good, diffId: sha256(Buffer.from("other")) }], "image_invalid"],
      ["bytes behind its end", [trailing], "image_invalid"],
      ["zeros without an end", [{ ...bomb, diffId: good.diffId }], "image_too_large"],
      ["no files", [packLayer(made, "empty", Buffer.alloc(10_240))], "image_invalid"],
    ];
    for (const [what, layers, code] of cases) {
      const failure = await unpackImage(deps, { layers, folder }).then(
        () => "it was unpacked",
        (error: { code: string }) => error.code,
      );
      expect(failure, what).toBe(code);
      expectNothingLeft(folder);
    }
  },
  2 * LIMIT_MS,
);

test(
  "a build that is aborted, takes too long or loses its builder ends at once and leaves nothing",
  async () => {
    const { folder, made } = places();
    const layers = distribution(made);
    const late = unpackImage(deps, { layers, folder, limitMs: 1 });
    await expect(late).rejects.toMatchObject({ code: "build_timeout" });
    expectNothingLeft(folder);
    const abort = new AbortController();
    const reason = new Error("the build was deleted");
    const onProgress = () => abort.abort(reason);
    await expect(unpackImage(deps, { layers, folder, signal: abort.signal, onProgress })).rejects.toBe(
      reason,
    );
    expectNothingLeft(folder);
    let killed: number | undefined;
    const kill = () => {
      if (killed !== undefined) return;
      killed = findBuilder()?.pid;
      if (killed !== undefined) process.kill(killed, "SIGKILL");
    };
    const lost = unpackImage(deps, { layers, folder, onProgress: kill });
    await expect(lost).rejects.toMatchObject({ code: "internal" });
    expect(killed).toBeDefined();
    expectNothingLeft(folder);
  },
  2 * LIMIT_MS,
);

test(
  "after a kill -9 the builder ends by itself, and the next attempt begins anew in the same folder",
  async () => {
    const { folder, made } = places();
    const layers = distribution(made);
    const script = join(import.meta.dirname, "../support/unpack-alone.ts");
    const child = spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] });
    child.stdin.end(JSON.stringify({ deps, layers, folder }));
    await new Promise((resolve, reject) => {
      child.stdout.once("data", resolve);
      child.once("exit", () => reject(new Error("it ended before it was killed")));
    });
    child.kill("SIGKILL");
    await eventually(() => expect(machineTraces(dataDir).processes).toBe(0), 60_000);
    expect(readdirSync(folder)).toEqual(["unpack"]);
    // As the daemon does at its start, whether the builder has ended or not.
    for (const slot of await slotsOf(dataDir)) await discardSlot(deps.cgroups, slot);
    const { image } = await unpack({ layers, folder });
    expect(image.totals.skipped).toBe(2);
    expect(readdirSync(folder)).toEqual(["root.ext4"]);
    expect(machineTraces(dataDir)).toMatchObject(NOTHING);
  },
  2 * LIMIT_MS,
);
