/** Data of a copy: entries, trees of them, and the interface that both sides implement. */
import { readFile } from "node:fs/promises";

/** One file, directory or link of a tree that is copied. */
export interface Entry {
  kind: "file" | "directory" | "link" | "other";
  bytes: number;
  /** Permission bits. */
  mode: number;
  /** Whole seconds since 1970. */
  modifiedAt: number;
  /** Target of a link. */
  target?: string;
  /** The read error when entries below this one are missing from the tree. */
  unread?: string;
}

/** Entries by path relative to the root of the tree, which is "". Parents come before their children. */
export type Tree = Map<string, Entry>;

/** Content of a file: a file of this machine can be read again, a stream only once. */
export type Content = { file: string } | AsyncIterable<Uint8Array>;

/** A file to write. */
export interface FileToPut {
  path: string;
  bytes: number;
  content: Content;
}

/** An entry that gets its mode and time at the end, when nothing is written below it any more, or is a link to make. */
export interface ToFinish {
  path: string;
  entry: Entry;
  /** Whether this copy made the entry, so that it still has the default mode of the side. */
  isNew: boolean;
}

export interface ScanOptions {
  depth?: number;
  isLinkKept?: boolean;
}

/** One side of a copy: this machine or a session. Paths are in the form of that side. */
export interface Place {
  /** The path as messages show it. */
  nameOf(path: string): string;
  /**
   * Lists the entries at and below a path, only the path itself with `depth` 0; undefined when it does not exist. A
   * link at the path is followed where its target exists, unless `isLinkKept`.
   */
  scan(path: string, options?: ScanOptions): Promise<Tree | undefined>;
  /** SHA-256 in hex, by path; files that cannot be read are left out. */
  hash(paths: readonly string[]): Promise<Map<string, string>>;
  read(path: string): Content;
  /** Writes a file atomically, after its missing parents. */
  put(file: FileToPut): Promise<void>;
  /** Writes small files in one request where the side can; returns failures by path. */
  putMany?(files: readonly FileToPut[]): Promise<Map<string, string>>;
  makeDirectories(paths: readonly string[]): Promise<void>;
  /** Removes links at the paths of new files, since a write would go to the target of the link. */
  removeLinks?(paths: readonly string[]): Promise<void>;
  /** Makes links, then sets modes and times; returns failures. */
  finish(what: readonly ToFinish[]): Promise<string[]>;
}

export function join(root: string, relative: string): string {
  if (relative === "") return root;
  return root.endsWith("/") ? `${root}${relative}` : `${root}/${relative}`;
}

/** The last component of a path; undefined for `.`, `..` and the root. */
export function baseName(path: string): string | undefined {
  const name = path.replace(/\/+$/, "").split("/").at(-1) ?? "";
  return ["", ".", ".."].includes(name) ? undefined : name;
}

/** The parent path of an entry in a tree; "", the root, for entries of the first level. */
export function parentOf(relative: string): string {
  return relative.slice(0, Math.max(relative.lastIndexOf("/"), 0));
}

export async function readAll(content: Content): Promise<Uint8Array> {
  return "file" in content ? await readFile(content.file) : Buffer.concat(await Array.fromAsync(content));
}
