/** The copies of versions that a unit runs: a folder for each, which no later change of a checkout touches. */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, statfs } from "node:fs/promises";
import path from "node:path";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { runHostCommand } from "@vivarium/kit/host-command";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import { formatBytes } from "../print/bytes.ts";
import { COPY_FACTS, gitAt, readBuild } from "../supervisor/build.ts";
import { copyModules, copySources, hashOf, must, SOURCES, sizeOf } from "./content.ts";

const COPIES_ROOT = "/usr/local/lib/vivarium";
/** Bytes that stay free beside a new copy. */
const MARGIN_BYTES = 256 * 1024 * 1024;

export interface Copy {
  path: string;
  /** As `viv version` prints it. */
  version: string;
  /** RFC 3339. */
  made_at: string;
}

export interface MadeCopy extends Copy {
  /** False for one that was there: a failed update to it does not remove it. */
  isNew: boolean;
}

/** Where the copies of a unit are, with the journal of its update. */
export const copiesDirOf = (unit: string) => path.join(COPIES_ROOT, unit);

/** The copies that are whole, oldest first. */
export async function listCopies(dir: string): Promise<Copy[]> {
  const names = await readdir(dir).catch(() => []);
  const found = await Promise.all(names.map((name) => readCopy(path.join(dir, name))));
  return found.filter((one) => one !== undefined).toSorted((a, b) => (a.made_at < b.made_at ? -1 : 1));
}

export async function readCopy(dir: string): Promise<Copy | undefined> {
  const text = await readFile(path.join(dir, COPY_FACTS), "utf8").catch(() => undefined);
  return text === undefined ? undefined : { path: dir, ...(JSON.parse(text) as Omit<Copy, "path">) };
}

/** Copies a checkout, unless its version has a copy already. A copy has its name only once it is whole and on disk. */
export async function makeCopy(root: string, dir: string): Promise<MadeCopy> {
  const { version } = await readBuild(root);
  const isExact = await isVersionExact(root, version);
  const present = isExact ? await readCopy(pathOf(dir, version)) : undefined;
  if (present) return { ...present, isNew: false };
  await mkdir(dir, { recursive: true, mode: 0o755 });
  await requireSpace(dir, (await sizeOf(root)) + MARGIN_BYTES, "the copy of this version");
  const partial = path.join(dir, ".partial");
  await rm(partial, { recursive: true, force: true });
  try {
    await copySources(root, partial);
    await copyModules(root, partial, (await listCopies(dir)).at(-1)?.path);
    const named = isExact
      ? version
      : `${version}${version.includes("+") ? "." : "+"}${await hashOf(partial)}`;
    return await publish(partial, dir, named);
  } catch (cause) {
    if (!hasCode(cause, "ENOSPC")) throw cause;
    throw new CliError(`cannot copy this version into ${dir}: the disk is full. Nothing was changed`, {
      cause,
    });
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

const pathOf = (dir: string, version: string) => path.join(dir, version.replace("+", "-"));

async function publish(partial: string, dir: string, version: string): Promise<MadeCopy> {
  const target = pathOf(dir, version);
  const present = await readCopy(target);
  if (present) return { ...present, isNew: false };
  const facts = { version, made_at: new Date().toISOString() };
  await writeDurably(path.join(partial, COPY_FACTS), JSON.stringify(facts), 0o644);
  // The whole filesystem: a power cut must not leave a copy with files that are empty.
  await must("sync", ["-f", partial]);
  await rename(partial, target);
  await syncPath(dir);
  return { path: target, ...facts, isNew: true };
}

/** Whether the version alone names the content: it is a copy, or a commit without changed and without new files. */
async function isVersionExact(root: string, version: string): Promise<boolean> {
  if (existsSync(path.join(root, COPY_FACTS))) return true;
  if (!version.includes("+")) return false;
  const args = [...gitAt(root), "status", "--porcelain", "--untracked-files=all", "--", ...SOURCES];
  const { code, stdout } = await runHostCommand("git", args);
  return code === 0 && stdout.trim() === "";
}

/** Removes all copies but these, and what a copy that was interrupted has left. */
export async function removeOthers(dir: string, kept: readonly (string | undefined)[]): Promise<void> {
  for (const { path: copy } of await listCopies(dir)) if (!kept.includes(copy)) await removeCopy(copy);
  await rm(path.join(dir, ".partial"), { recursive: true, force: true });
}

/** Without its facts it is no copy any more, should this be interrupted. */
export async function removeCopy(copy: string): Promise<void> {
  await rm(path.join(copy, COPY_FACTS), { force: true });
  await rm(copy, { recursive: true, force: true });
}

/** Fails while nothing was changed, if a filesystem has less than this free. */
export async function requireSpace(dir: string, bytes: number, what: string): Promise<void> {
  const { bavail, bsize } = await statfs(dir);
  if (bavail * bsize >= bytes) return;
  throw new CliError(
    `${what} needs ${formatBytes(bytes)} in ${dir}, and ${formatBytes(bavail * bsize)} are free`,
    { hint: "Nothing was changed. Make space, and install again." },
  );
}
