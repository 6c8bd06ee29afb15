/**
 * Copies what a service needs at run time out of a checkout: its sources and the packages of npm that are not for
 * development alone, from lists, never git's own files. Root owns every file of the copy.
 */
import { createHash } from "node:crypto";
import { existsSync, constants as fsConstants } from "node:fs";
import { cp, mkdir, readFile, readlink, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { sumsBelow } from "../backup/sums.ts";
import { CliError } from "../cli-error.ts";

/** Files and folders of a checkout, besides its packages of npm. Set-up reads `guest` and `images`. */
export const SOURCES = [
  ...["CHANGELOG.md", "LICENSE", "README.md", "docs", "examples", "guest", "images"],
  ...["package-lock.json", "package.json", "packages", "scripts", "setup", "viv"],
];
const MODULES = "node_modules";
const LOCK_FILE = "package-lock.json";
/** File by which set-up sees that the packages are those of the lock file. */
const MODULES_STAMP = ".vivarium-lock";
const COPY_LIMIT_MS = 600_000;
/** Modes of a copy: everybody may read it, as the processes without rights do, and only root may write. */
const OURS_ALONE = "u+rwX,go+rX,go-w";

export async function copySources(root: string, target: string): Promise<void> {
  await mkdir(target, { recursive: true });
  for (const name of sourcesOf(root))
    await cp(path.join(root, name), path.join(target, name), {
      recursive: true,
      verbatimSymlinks: true,
      mode: fsConstants.COPYFILE_FICLONE,
      filter: (source) => isNeeded(path.relative(root, source)),
    });
  await must("chmod", ["-R", OURS_ALONE, target]);
}

const sourcesOf = (root: string) => SOURCES.filter((name) => existsSync(path.join(root, name)));

function isNeeded(name: string): boolean {
  if (name === "guest/target") return false;
  return !/^packages\/([^/]+\/test-support$|.*\.test\.ts$)/.test(name);
}

/** The packages are linked from another copy that has the same ones, since nothing changes a file of a copy. */
export async function copyModules(root: string, target: string, other: string | undefined): Promise<void> {
  if (other !== undefined && (await haveSameModules(root, other))) {
    await must("cp", ["-al", path.join(other, MODULES), path.join(target, MODULES)]);
    return;
  }
  const names = (await modulesOf(root)).filter((name) => existsSync(path.join(root, name)));
  for (const [dir, inside] of Map.groupBy(names, (name) => path.dirname(name))) {
    await mkdir(path.join(target, dir), { recursive: true });
    // A package may be a link to a folder elsewhere, which is followed; links inside of it stay.
    const sources = inside.map((name) => path.join(root, name));
    await must("cp", [
      "-aH",
      "--no-preserve=ownership",
      "--reflink=auto",
      ...sources,
      path.join(target, dir),
    ]);
  }
  await must("chmod", ["-R", OURS_ALONE, path.join(target, MODULES)]);
  await linkWorkspaces(target);
  await linkNode(root, target);
  const stamp = createHash("sha256").update(await readFile(path.join(root, LOCK_FILE)));
  await writeFile(stampOf(target), `${stamp.digest("hex")}\n`);
}

const stampOf = (root: string) => path.join(root, MODULES, MODULES_STAMP);

async function haveSameModules(root: string, other: string): Promise<boolean> {
  const [own, theirs] = await Promise.all(
    [root, other].map((dir) => readFile(path.join(dir, LOCK_FILE), "utf8").catch(() => undefined)),
  );
  return own !== undefined && own === theirs && existsSync(stampOf(other));
}

interface LockedPackage {
  dev?: boolean;
  link?: boolean;
}

async function lockedPackages(root: string): Promise<[string, LockedPackage][]> {
  const lock = JSON.parse(await readFile(path.join(root, LOCK_FILE), "utf8")) as {
    packages: Record<string, LockedPackage>;
  };
  return Object.entries(lock.packages).filter(([name]) => /^node_modules\/(@[^/]+\/)?[^/]+$/.test(name));
}

async function modulesOf(root: string): Promise<string[]> {
  const all = await lockedPackages(root);
  return all.filter(([, { dev, link }]) => !dev && !link).map(([name]) => name);
}

/** Our own packages are links, by which sources import one another. */
async function linkWorkspaces(target: string): Promise<void> {
  const lock = JSON.parse(await readFile(path.join(target, LOCK_FILE), "utf8")) as {
    packages: Record<string, { link?: boolean; resolved?: string }>;
  };
  for (const [name, { link, resolved = "" }] of Object.entries(lock.packages)) {
    if (!link) continue;
    const file = path.join(target, name);
    await mkdir(path.dirname(file), { recursive: true });
    await symlink(path.relative(path.dirname(file), path.join(target, resolved)), file);
  }
}

async function linkNode(root: string, target: string): Promise<void> {
  const name = path.join(MODULES, ".bin", "node");
  await mkdir(path.dirname(path.join(target, name)), { recursive: true });
  await symlink(await readlink(path.join(root, name)), path.join(target, name));
  if (existsSync(path.join(target, name))) return;
  throw new CliError(`${path.join(root, name)} leads to no program in a copy`, {
    hint: "Run ./setup, which installs Node as a package of npm.",
  });
}

/** Bytes that a copy takes at most, where the filesystem cannot share blocks. */
export async function sizeOf(root: string): Promise<number> {
  const modules = (await modulesOf(root)).filter((name) => existsSync(path.join(root, name)));
  const parts = [...sourcesOf(root), ...modules].map((name) => path.join(root, name));
  const out = await must("du", ["-skD", "--total", "--exclude=guest/target", ...parts]);
  return Number(/^(\d+)\ttotal$/m.exec(out)?.[1] ?? 0) * 1024;
}

/** One hash over the names and contents of a copy's sources. */
export async function hashOf(copy: string): Promise<string> {
  const sums = await sumsBelow(copy, sourcesOf(copy));
  return createHash("sha256").update(JSON.stringify(sums)).digest("hex").slice(0, 8);
}

export async function must(command: string, args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runHostCommand(command, args, { timeoutMs: COPY_LIMIT_MS });
  if (code === 0) return stdout;
  const reason = stderr.includes("No space left") ? "the disk is full" : stderr.trim().split("\n").at(-1);
  throw new CliError(`cannot copy this version: ${reason || `${command} ended with ${code}`}`);
}
