/**
 * Keeps the objects of artifacts and of the warm tier for a backup, and places those of one, where the object store is a directory
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

/** Folders of an organisation's objects. `archives`: of the warm tier, which has saved states. */
export type ObjectKind = "artifacts" | "archives";
const KINDS = ["artifacts", "archives"] as const satisfies ObjectKind[];

/** Objects of one artifact, or of one space of archives: what their keys begin with, and their names below it. */
export interface KeptObjects {
  prefix: string;
  objects: string[];
}

const PREFIX =
  /^(?:org_\w+\/artifacts\/(?=art_)|(?:org_\w+|service)\/archives\/(?=spc_))(\w{3}_[a-z0-9]{21})\/$/;
const NAME = /^[0-9a-f]{64}$/;

/** The id of the artifact or space; undefined if it is no prefix of one. */
export const ownerOfPrefix = (prefix: string): string | undefined => PREFIX.exec(prefix)?.[1];

/** Whether the path in a backup is that of an object. */
export function isObjectPath(file: string): boolean {
  const [, prefix = "", name = ""] = /^objects\/(.*\/)([0-9a-f]{64})@$/.exec(file) ?? [];
  return NAME.test(name) && ownerOfPrefix(prefix) !== undefined;
}

/** Where objects can be given further names: in a directory of root's, unless theirs is on another file system. */
export async function parentOfKept(dataDir: string, objectsDir: string): Promise<string> {
  const found = await stat(objectsDir).catch(() => undefined);
  return found && found.dev !== (await stat(dataDir)).dev ? objectsDir : dataDir;
}

/** Makes further names of all objects of these kinds below `target`. `known`: the objects that earlier calls have kept. */
export async function keepAllObjects(
  { dir: objectsDir, target, kinds }: { dir: string; target: string; kinds: readonly ObjectKind[] },
  known: Set<string>,
): Promise<void> {
  const root = path.join(objectsDir, "objects");
  const orgs = await foldersIn(root);
  for (const parent of orgs.flatMap((org) => kinds.map((kind) => path.join(org, kind)))) {
    for (const id of await foldersIn(path.join(root, parent))) {
      const prefix = `${parent}/${id}/`;
      const names = await readdir(path.join(root, prefix)).catch(() => []);
      const fresh = names.filter((name) => name.endsWith("@") && !known.has(prefix + name));
      if (fresh.length === 0) continue;
      const objects = fresh.map((name) => name.slice(0, -1));
      if (!(await keepObjects(objectsDir, target, { prefix, objects }))) continue;
      for (const name of fresh) known.add(prefix + name);
    }
  }
}

/** Makes further names of these objects below `target`. Returns whether all of them are there. */
export async function keepObjects(
  objectsDir: string,
  target: string,
  { prefix, objects }: KeptObjects,
): Promise<boolean> {
  // The database is control's: a name in it that is no key could lead anywhere.
  if (!ownerOfPrefix(prefix) || !objects.every((name) => NAME.test(name))) return false;
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

/** Removes what was kept below other prefixes than these. */
export async function dropOtherObjects(target: string, prefixes: readonly string[]): Promise<void> {
  const wanted = new Set(prefixes);
  const root = path.join(target, OBJECTS_DIR);
  for (const parent of (await foldersIn(root)).flatMap((org) => KINDS.map((kind) => path.join(org, kind))))
    for (const id of await foldersIn(path.join(root, parent)))
      if (!wanted.has(`${parent}/${id}/`)) await rm(path.join(root, parent, id), { recursive: true });
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
