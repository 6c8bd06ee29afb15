/** Builds the disks of hosts in a machine, once for each set of inputs, and gives each run overlays of them. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import type { HostDisks } from "./host.ts";

const HERE = import.meta.dirname;
const ROOT = path.join(HERE, "../..");
const CACHE = path.join(
  process.env.VIV_CACHE_DIR ??
    path.join(process.env.XDG_CACHE_HOME ?? path.join(homedir(), ".cache"), "vivarium"),
  "hosts",
);
const BUILD_LIMIT_MS = 30 * 60_000;
const KEPT = 2;
const DISK_NAMES = ["root.qcow2", "project.qcow2"];
const SAVED_STATE = "host.state";

export type Release = "bookworm" | "trixie";

/** Returns the folder with the root disk of this release; builds it if its inputs changed. */
async function rootOf(release: Release): Promise<string> {
  const inputs = ["build-root", "files", "../../scripts/setup/packages.sh"].map((name) =>
    path.join(HERE, name),
  );
  const folder = path.join(CACHE, `${release}-${hashOf(inputs)}`);
  if (existsSync(path.join(folder, "root.img"))) return folder;
  await rm(`${folder}.part`, { recursive: true, force: true });
  await must(path.join(HERE, "build-root"), [release, `${folder}.part`]);
  await rename(`${folder}.part`, folder);
  return folder;
}

/** Returns the disk with the last commit of this checkout; builds it if there is none of that commit. */
async function projectDisk(): Promise<string> {
  const commit = (await must("git", ["-C", ROOT, "rev-parse", "HEAD"])).trim();
  const file = path.join(CACHE, `project-${commit.slice(0, 12)}.img`);
  await mkdir(CACHE, { recursive: true });
  if (!existsSync(file)) await must(path.join(HERE, "build-project"), [file]);
  return file;
}

/** A host that was set up with the last commit of this checkout, and saved while it ran. */
export interface SavedHost extends Pick<HostDisks, "root"> {
  folder: string;
}

/**
 * The host of this release that was saved before, on a machine with these arguments; without one `setUp` makes it from a
 * host that was just built.
 */
export async function savedHost(
  release: Release,
  machine: string[],
  setUp: (disks: HostDisks, saveTo: string) => Promise<void>,
): Promise<SavedHost> {
  const root = await rootOf(release);
  const project = await projectDisk();
  const qemu = await must("qemu-system-x86_64", ["--version"]);
  const inputs = [
    path.basename(root),
    path.basename(project, ".img"),
    shortHash([qemu, ...machine].join(" ")),
  ];
  const folder = path.join(CACHE, `saved-${inputs.join("-")}`);
  if (existsSync(folder)) return { root, folder };
  const part = `${folder}.part`;
  await rm(part, { recursive: true, force: true });
  await setUp(await overlaysIn(part, path.join(root, "root.img"), project), path.join(part, SAVED_STATE));
  await rename(part, folder);
  await removeOld(`saved-${release}-`);
  await removeOld("project-");
  return { root, folder };
}

/** Keeps the newest ones of what is built for each commit: one takes gigabytes. */
async function removeOld(prefix: string): Promise<void> {
  const ageOf = (name: string) => statSync(path.join(CACHE, name)).mtimeMs;
  const names = readdirSync(CACHE).filter((name) => name.startsWith(prefix));
  const old = names.toSorted((a, b) => ageOf(b) - ageOf(a)).slice(KEPT);
  for (const name of old) await rm(path.join(CACHE, name), { recursive: true, force: true });
}

/** The disks of a run that continues a saved host. */
export async function continued(folder: string, saved: SavedHost): Promise<HostDisks> {
  const [root, project] = DISK_NAMES.map((name) => path.join(saved.folder, name)) as [string, string];
  const disks = await overlaysIn(folder, root, project);
  return { ...disks, root: saved.root, saved: path.join(saved.folder, SAVED_STATE) };
}

/** New overlays in `folder`, which the host writes to; what they lie over stays as it was built. */
async function overlaysIn(folder: string, root: string, project: string): Promise<HostDisks> {
  await mkdir(folder, { recursive: true });
  const disks = await Promise.all(
    [root, project].map(async (base, index) => ({
      file: await overlay(path.join(folder, DISK_NAMES[index] as string), base),
    })),
  );
  return {
    root: path.dirname(root),
    disks: disks as HostDisks["disks"],
    console: path.join(folder, "console.log"),
  };
}

/** Makes a new overlay over a disk, and returns its path. */
export async function overlay(file: string, base: string): Promise<string> {
  await rm(file, { force: true });
  const format = base.endsWith(".qcow2") ? "qcow2" : "raw";
  await must("qemu-img", ["create", "-q", "-f", "qcow2", "-F", format, "-b", base, file]);
  return file;
}

/** Writes a qcow2 disk as a raw one, with holes where it has zeros. */
export async function flatten(file: string, raw: string): Promise<void> {
  await must("qemu-img", ["convert", "-q", "-f", "qcow2", "-O", "raw", file, raw]);
}

/** Folder for what one run writes. */
export const runFolder = (release: Release) => path.join(CACHE, "runs", `${release}-${process.pid}`);

const shortHash = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 12);

function hashOf(inputs: string[]): string {
  const hash = createHash("sha256");
  for (const file of inputs.flatMap(filesBelow)) hash.update(`${file}\0`).update(readFileSync(file));
  return hash.digest("hex").slice(0, 12);
}

function filesBelow(at: string): string[] {
  if (!statSync(at).isDirectory()) return [at];
  return readdirSync(at, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(({ name }) => filesBelow(path.join(at, name)));
}

async function must(program: string, args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runHostCommand(program, args, { timeoutMs: BUILD_LIMIT_MS });
  if (code === 0) return stdout;
  throw new Error(
    `${path.basename(program)} ${args.join(" ")} ended with code ${code}:\n${stderr.trimEnd()}`,
  );
}
