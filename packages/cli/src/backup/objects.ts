/**
 * Keeps the objects of artifacts for a backup, and places those of one, where the object store is a directory
 * (packages/objects directory-store.ts). An object never changes, so a further name keeps it while the service deletes it.
 */
import { existsSync } from "node:fs";
import {
  chmod,
  constants,
  copyFile,
  lchown,
  link,
  lstat,
  mkdir,
  readdir,
  rename,
  rm,
  stat,
} from "node:fs/promises";
import path from "node:path";
import type { Account } from "@vivarium/kit/account";
import { syncFileSystem } from "@vivarium/kit/durable-file";
import { randomId } from "@vivarium/kit/id";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import { OBJECTS_DIR } from "./manifest.ts";

const DIR_MODE = 0o700;
const FILE_MODE = 0o600;

/** Objects of one artifact: what their keys begin with, and their names below it. */
export interface ArtifactObjects {
  prefix: string;
  objects: string[];
}

const PREFIX = /^org_\w+\/artifacts\/(art_[a-z0-9]{21})\/$/;
const NAME = /^[0-9a-f]{64}$/;
/** The path of an object of an artifact in a backup. */
const OBJECT_PATH = /^objects\/org_\w+\/artifacts\/(art_[a-z0-9]{21})\/[0-9a-f]{64}@$/;

export const artifactOfPath = (file: string): string | undefined => OBJECT_PATH.exec(file)?.[1];
export const artifactOfPrefix = (prefix: string): string | undefined => PREFIX.exec(prefix)?.[1];

/** Where objects can be given further names: in a directory of root's, unless theirs is on another file system. */
export async function parentOfKept(dataDir: string, objectsDir: string): Promise<string> {
  const found = await stat(objectsDir).catch(() => undefined);
  return found && found.dev !== (await stat(dataDir)).dev ? objectsDir : dataDir;
}

/** Makes further names of all objects of artifacts below `target`. `known`: the objects that earlier calls have kept. */
export async function keepAllObjects(objectsDir: string, target: string, known: Set<string>): Promise<void> {
  const root = path.join(objectsDir, "objects");
  for (const org of await foldersIn(root)) {
    const artifacts = path.join(org, "artifacts");
    for (const id of await foldersIn(path.join(root, artifacts))) {
      const prefix = `${artifacts}/${id}/`;
      const names = await readdir(path.join(root, prefix)).catch(() => []);
      const fresh = names.filter((name) => name.endsWith("@") && !known.has(prefix + name));
      if (fresh.length === 0) continue;
      const objects = fresh.map((name) => name.slice(0, -1));
      if (!(await keepObjects(objectsDir, target, { prefix, objects }))) continue;
      for (const name of fresh) known.add(prefix + name);
    }
  }
}

/** Makes further names of an artifact's objects below `target`. Returns whether all of them are there. */
export async function keepObjects(
  objectsDir: string,
  target: string,
  { prefix, objects }: ArtifactObjects,
): Promise<boolean> {
  // The database is control's: a name in it that is no key could lead anywhere.
  if (!artifactOfPrefix(prefix) || !objects.every((name) => NAME.test(name))) return false;
  const [source, kept] = [path.join(objectsDir, "objects", prefix), path.join(target, OBJECTS_DIR, prefix)];
  await mkdir(kept, { recursive: true, mode: DIR_MODE });
  let isWhole = true;
  for (const name of objects)
    isWhole = (await keepObject(path.join(source, `${name}@`), path.join(kept, `${name}@`))) && isWhole;
  return isWhole;
}

async function keepObject(source: string, kept: string): Promise<boolean> {
  try {
    await link(source, kept);
  } catch (error) {
    // It may have been kept before, and be deleted since.
    if (hasCode(error, "EEXIST", "ENOENT", "ENOTDIR")) return existsSync(kept);
    throw error;
  }
  // Control's user could have made it a link, to have a file of root's in the backup.
  if ((await lstat(kept)).isFile()) return true;
  await rm(kept);
  return false;
}

/** Removes what was kept of other artifacts than these. */
export async function dropOtherObjects(target: string, prefixes: readonly string[]): Promise<void> {
  const wanted = new Set(prefixes);
  const root = path.join(target, OBJECTS_DIR);
  for (const org of await foldersIn(root))
    for (const id of await foldersIn(path.join(root, org, "artifacts")))
      if (!wanted.has(`${org}/artifacts/${id}/`))
        await rm(path.join(root, org, "artifacts", id), { recursive: true });
}

/** Names of the folders in a folder, without links. */
async function foldersIn(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/**
 * Copies the objects below `source` into a store that nobody uses meanwhile. One that is there is replaced: it has the same
 * content, if it is not damaged.
 */
export async function placeObjects(source: string, objectsDir: string, user: Account): Promise<void> {
  const [root, incoming] = [path.join(objectsDir, "objects"), path.join(objectsDir, "incoming")];
  await mkdir(path.dirname(objectsDir), { recursive: true });
  const dirs = new PlainDirs(objectsDir, user);
  await dirs.enter(incoming);
  for (const entry of await readdir(source, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const from = path.join(entry.parentPath, entry.name);
    const target = path.join(root, path.relative(source, from));
    await dirs.enter(path.dirname(target));
    const partial = path.join(incoming, randomId());
    await copyFile(from, partial, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await chmod(partial, FILE_MODE);
    await lchown(partial, user.uid, user.gid);
    await rename(partial, target);
  }
  await syncFileSystem(objectsDir);
}

/** Makes directories of the user's. Hazard: the user could have put links there that lead root elsewhere. */
class PlainDirs {
  readonly #top: string;
  readonly #user: Account;
  readonly #known = new Set<string>();

  constructor(top: string, user: Account) {
    this.#top = top;
    this.#user = user;
  }

  async enter(dir: string): Promise<void> {
    if (this.#known.has(dir)) return;
    if (dir !== this.#top) await this.enter(path.dirname(dir));
    try {
      await mkdir(dir, { mode: DIR_MODE });
      await lchown(dir, this.#user.uid, this.#user.gid);
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw error;
      // The store itself may be on another disk, behind a link of the operator's.
      const found = await (dir === this.#top ? stat(dir) : lstat(dir));
      if (!found.isDirectory()) throw new CliError(`${dir} is no directory, and nothing is put there`);
    }
    this.#known.add(dir);
  }
}
