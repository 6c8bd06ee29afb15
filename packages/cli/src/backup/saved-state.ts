/**
 * Keeps the files of saved states for a backup, and places those of one. A snapshot's files never change once they are
 * published, so further names keep them while the service deletes the snapshot itself.
 */
import { existsSync } from "node:fs";
import { link, mkdir, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { syncFileSystem, syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { runHostCommand } from "@vivarium/kit/host-command";
import { hasCode } from "@vivarium/kit/unknown-error";

/** Its manifest is the last file of a snapshot that appears. */
const MANIFEST = "manifest.json";
/** The disk of the template. The node takes it for changed if its time or its size on disk are not as they were. */
const BASE = "base.raw";

/** Name or version of a template: one directory of those of the images. */
const TEMPLATE_PART = /^\w[\w.-]*$/;

const BUILD_NAME = /^[0-9a-f]{16}/;

interface Snapshot {
  qemu_build: string;
  template: string;
  version: string;
  files: Record<string, { bytes: number; mtime: string; blocks: number }>;
}

/** Makes further names of a snapshot's files below `target`. Returns whether the snapshot was there. */
export async function pinSnapshot(source: string, target: string): Promise<boolean> {
  try {
    await mkdir(target, { recursive: true, mode: 0o711 });
    const names = await readdir(source);
    if (!names.includes(MANIFEST)) throw Object.assign(new Error("unpublished"), { code: "ENOENT" });
    for (const name of names) await link(path.join(source, name), path.join(target, name));
    return true;
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/** Names below `qemu-root` of the builds that load these snapshots. */
export async function buildsOf(dirs: readonly string[]): Promise<string[]> {
  const builds = await Promise.all(dirs.map(async (dir) => (await readSnapshot(dir)).qemu_build));
  const names = builds.flatMap((build) => BUILD_NAME.exec(build) ?? []);
  return [...new Set(names)].sort();
}

/**
 * Moves a snapshot of a backup, whose files are on disk, into the pool, unless it is there already: its name says that it
 * is whole.
 */
export async function placeSnapshot(source: string, target: string, imagesDir: string): Promise<void> {
  if (existsSync(path.join(target, MANIFEST))) return;
  await settleBase(source, imagesDir);
  await syncPath(source);
  await rm(target, { recursive: true, force: true });
  await mkdir(path.dirname(target), { recursive: true, mode: 0o711 });
  await rename(source, target);
  await syncPath(path.dirname(target));
}

/** Moves the files of a QEMU build to where the node looks for them, unless they are there already. */
export async function placeBuild(source: string, target: string): Promise<void> {
  if (existsSync(target)) return;
  await mkdir(path.dirname(target), { recursive: true, mode: 0o755 });
  const partial = `${target}.restored`;
  await rm(partial, { recursive: true, force: true });
  await runCommand("cp", ["-a", source, partial]);
  await syncFileSystem(partial);
  await rename(partial, target);
  await syncPath(path.dirname(target));
}

/**
 * Makes the template's disk what the node expects: the file of the template itself where it is here, which also saves
 * its space, and else the unpacked one with its holes and its time. Its content was compared with the backup's sums.
 */
async function settleBase(dir: string, imagesDir: string): Promise<void> {
  const { template, version, files } = await readSnapshot(dir);
  const expected = files[BASE];
  if (!expected) return;
  for (const name of [template, version])
    if (!TEMPLATE_PART.test(name)) throw new Error(`${dir} names a template ${JSON.stringify(name)}`);
  const file = path.join(dir, BASE);
  const original = path.join(imagesDir, "templates", template, version, "root.ext4");
  if (await isAs(original, expected)) {
    await rm(file, { force: true });
    const isLinked = await link(original, file).then(
      () => true,
      () => false,
    );
    // Another filesystem: a copy.
    if (!isLinked) await runCommand("cp", ["-a", "--reflink=auto", "--sparse=always", original, file]);
  }
  // Until it is on disk a file counts more blocks than it will have.
  await syncPath(file);
  if (await isAs(file, expected)) return;
  await runCommand("fallocate", ["--dig-holes", file]);
  const nanoseconds = expected.mtime.padStart(10, "0");
  await runCommand("touch", ["-d", `@${nanoseconds.slice(0, -9)}.${nanoseconds.slice(-9)}`, file]);
  await syncPath(file);
  if (!(await isAs(file, expected))) await expectBlocksOf(file, dir);
}

/** Another file system lays the same content out in more blocks, and the node would take the file for changed. */
async function expectBlocksOf(file: string, dir: string): Promise<void> {
  const manifest = await readSnapshot(dir);
  const base = manifest.files[BASE];
  if (base) base.blocks = (await stat(file)).blocks;
  await writeDurably(path.join(dir, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`, 0o444);
}

async function isAs(
  file: string,
  expected: { bytes: number; mtime: string; blocks: number },
): Promise<boolean> {
  const found = await stat(file, { bigint: true }).catch(() => undefined);
  if (!found) return false;
  const isSame = Number(found.size) === expected.bytes && String(found.mtimeNs) === expected.mtime;
  return isSame && Number(found.blocks) <= expected.blocks;
}

async function readSnapshot(dir: string): Promise<Snapshot> {
  return JSON.parse(await readFile(path.join(dir, MANIFEST), "utf8")) as Snapshot;
}

async function runCommand(command: string, args: string[]): Promise<void> {
  const { code, stderr } = await runHostCommand(command, args, { timeoutMs: 3_600_000 });
  if (code !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr.trim()}`);
}
