/**
 * Makes the root file system of jailed QEMUs: the binary, its libraries and firmware, `setpriv`, and empty mount
 * points. It is made once per QEMU build, and again when the host updates a library or firmware; it is owned by root
 * and bound read-only into every jail.
 */
import { createHash, randomUUID } from "node:crypto";
import { createReadStream, existsSync } from "node:fs";
import { chmod, cp, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { syncFileSystem, syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { MIB } from "@vivarium/kit/sizes";
import { JAIL_PATHS } from "../qemu/arguments.ts";
import { run } from "./run.ts";

const QEMU = "/usr/bin/qemu-system-x86_64";
const BINARIES = [QEMU, "/usr/bin/setpriv"];
const FIRMWARE_DIRS = ["/usr/share/qemu", "/usr/share/seabios"];
const MOUNT_DIRS = ["/proc", "/dev", "/tmp", "/etc", JAIL_PATHS.run];
/** A jail has a /run and a /tmp of its own. */
const MOUNT_FILES = Object.values(JAIL_PATHS).filter((target) => !/^\/(run|tmp)\b/.test(target));

export interface QemuRoot {
  dir: string;
  /** Identifies the QEMU build; a snapshot loads only on the build that made it. */
  buildId: string;
  version: string;
}

export async function prepareQemuRoot(dataDir: string): Promise<QemuRoot> {
  const [firstLine = ""] = (await run(QEMU, ["--version"])).split("\n");
  const version = firstLine.replace("QEMU emulator version ", "");
  const buildId = await hashFile(QEMU);
  const dir = path.join(dataDir, "qemu-root", nameOf(buildId));
  const sources = await describeSources();
  const described = await readFile(sourcesFile(dir), "utf8").catch(() => undefined);
  if (!existsSync(dir) || described !== sources) await build(dir, sources);
  await removeReplaced(path.dirname(dir));
  return { dir, buildId, version };
}

const nameOf = (buildId: string) => buildId.slice(0, 16);

/**
 * The root of the build that made a saved state. Roots of earlier builds are kept, so that an update of the host's
 * QEMU loses no session. Undefined if that build has never been on this host.
 */
export function rootOf({ dir, buildId }: Omit<QemuRoot, "version">, wanted: string): string | undefined {
  if (wanted === buildId) return dir;
  const earlier = path.join(path.dirname(dir), nameOf(wanted));
  return existsSync(earlier) ? earlier : undefined;
}

const REPLACED = ".replaced-";
/** The file with the list of the root's sources, beside the root, where no jail sees it. */
const sourcesFile = (dir: string) => `${dir}.sources`;

/** Lists the files of the host that the root is made from, with size and time, which an update of a package changes. */
async function describeSources(): Promise<string> {
  const files = new Set(await programFiles());
  for (const source of firmwareDirs())
    for (const name of await readdir(source, { recursive: true })) files.add(path.join(source, name));
  const lines = [...files].sort().map(async (file) => {
    // A link among the firmware files may be dangling.
    const found = await stat(file).catch(() => undefined);
    return `${file} ${found?.size ?? "-"} ${found?.mtimeMs ?? "-"}\n`;
  });
  return (await Promise.all(lines)).join("");
}

const firmwareDirs = () => FIRMWARE_DIRS.filter((source) => existsSync(source));

/** Builds the root. An earlier one is renamed, because running machines still use it. */
async function build(dir: string, sources: string): Promise<void> {
  const partial = `${dir}.tmp-${process.pid}`;
  await rm(partial, { recursive: true, force: true });
  for (const target of MOUNT_DIRS) await mkdir(path.join(partial, target), { recursive: true, mode: 0o755 });
  for (const target of MOUNT_FILES) await writeFile(path.join(partial, target), "");
  for (const file of await programFiles()) await install(partial, file);
  for (const source of firmwareDirs())
    await cp(source, path.join(partial, source), { recursive: true, dereference: true });
  await chmod(partial, 0o755);
  // The list of sources says that it is whole: a power cut must not leave it beside programs that are empty.
  await syncFileSystem(partial);
  if (existsSync(dir)) await rename(dir, `${dir}${REPLACED}${randomUUID()}`);
  await rename(partial, dir);
  await syncPath(path.dirname(dir));
  await writeDurably(sourcesFile(dir), sources, 0o644);
}

/**
 * Removes replaced roots that no machine runs in. Removing a mount point of one in use would also unmount the jail's
 * own file there, and QEMU could not save its machine.
 */
async function removeReplaced(rootsDir: string): Promise<void> {
  const replaced = (await readdir(rootsDir)).filter((name) => name.includes(REPLACED));
  if (replaced.length === 0) return;
  const mounts = await mountsOfAll();
  for (const name of replaced)
    if (!mounts.includes(`/${name} `)) await rm(path.join(rootsDir, name), { recursive: true, force: true });
}

/** The mounts of all processes of this host, each with its path in the source file system. */
async function mountsOfAll(): Promise<string> {
  const pids = (await readdir("/proc")).filter((name) => /^[0-9]+$/.test(name));
  // A process may have ended meanwhile.
  const read = (pid: string) => readFile(`/proc/${pid}/mountinfo`, "utf8").catch(() => "");
  return (await Promise.all(pids.map(read))).join("\n");
}

/** The binaries and their libraries. `ldd` names each by its path; the loader is the line without an arrow. */
async function programFiles(): Promise<string[]> {
  const listed = await Promise.all(BINARIES.map((binary) => run("ldd", [binary])));
  const libraries = listed.join("\n").matchAll(/(?:=> )?(\/[^ ]+) \(0x/g);
  return [...new Set([...BINARIES, ...[...libraries].map(([, file]) => file as string)])];
}

async function install(root: string, file: string): Promise<void> {
  const target = path.join(root, file);
  await mkdir(path.dirname(target), { recursive: true, mode: 0o755 });
  await cp(file, target, { dereference: true });
  await chmod(target, 0o755);
}

/** `onRead`: called with the bytes of each read, before the next one. */
export async function hashFile(
  file: string,
  onRead: (bytes: number) => Promise<void> = async () => {},
): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { highWaterMark: MIB })) {
    hash.update(chunk as Buffer);
    await onRead((chunk as Buffer).length);
  }
  return hash.digest("hex");
}
