import type { Stats } from "node:fs";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { hasCode } from "@vivarium/kit/unknown-error";
import { type Entry, join, type ScanOptions, type Tree } from "./entry.ts";

/** Character with which Node replaces bytes that are not UTF-8; a file with such a name cannot be opened by it. */
const UNREADABLE = "\ufffd";

/** Reads the tree at a path of this machine. Follows a link at the root unless `isLinkKept`, and no link below it. */
export async function scanLocal(
  root: string,
  { depth = Number.POSITIVE_INFINITY, isLinkKept = false }: ScanOptions = {},
): Promise<Tree | undefined> {
  const followed = isLinkKept ? undefined : await statIfAny(root, stat);
  const found = followed ?? (await statIfAny(root, lstat));
  if (found === undefined) return undefined;
  const tree: Tree = new Map([["", await toEntry(root, found)]]);
  if (found.isDirectory() && depth > 0) await scanBelow(root, "", depth, tree);
  return tree;
}

async function scanBelow(root: string, relative: string, depth: number, tree: Tree): Promise<void> {
  for (const name of await namesIn(root, relative, tree)) {
    const path = relative === "" ? name : `${relative}/${name}`;
    const found = await statIfAny(join(root, path), lstat).catch((error) => setUnread(tree, relative, error));
    if (found === undefined && !name.includes(UNREADABLE)) continue;
    const entry = found === undefined ? UNNAMEABLE : await toEntry(join(root, path), found);
    tree.set(path, entry);
    if (entry.kind === "directory" && depth > 1) await scanBelow(root, path, depth - 1, tree);
  }
}

async function namesIn(root: string, relative: string, tree: Tree): Promise<string[]> {
  try {
    return (await readdir(join(root, relative))).toSorted();
  } catch (error) {
    setUnread(tree, relative, error);
    return [];
  }
}

/** Records an unreadable directory on its entry, so that the scan continues; rethrows other errors. */
function setUnread(tree: Tree, relative: string, error: unknown): undefined {
  const directory = tree.get(relative);
  if (!hasCode(error, "EACCES", "EPERM", "ENOENT") || directory === undefined) throw error;
  directory.unread = error.message;
}

const UNNAMEABLE: Entry = { kind: "other", bytes: 0, mode: 0, modifiedAt: 0 };

async function toEntry(path: string, stats: Stats): Promise<Entry> {
  const facts = {
    bytes: stats.size,
    mode: stats.mode & 0o777,
    modifiedAt: Math.floor(stats.mtimeMs / 1000),
  };
  if (stats.isSymbolicLink()) return { ...facts, kind: "link", target: await readlink(path) };
  if (stats.isDirectory()) return { ...facts, kind: "directory" };
  return { ...facts, kind: stats.isFile() ? "file" : "other" };
}

async function statIfAny(
  path: string,
  readStats: (path: string) => Promise<Stats>,
): Promise<Stats | undefined> {
  try {
    return await readStats(path);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}
