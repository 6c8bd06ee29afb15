import { readFile } from "node:fs/promises";

/** One file, directory or link of a tree that is copied. */
export interface Entry {
  kind: "file" | "directory" | "link" | "other";
  bytes: number;
  /** Permission bits. */
  mode: number;
  /** Whole seconds since 1970. */
  modifiedAt: number;
  /** Where a link leads. */
  target?: string;
  /** Why something at or below it is missing from its tree. */
  unread?: string;
}

/** By path relative to the root of the tree; the root itself is "". Parents come before what is in them. */
export type Tree = Map<string, Entry>;

/** Content as it is handed over: a file of this machine can be read again, a stream once. */
export type Content = { file: string } | AsyncIterable<Uint8Array>;

/** A file to write. */
export interface FileToPut {
  path: string;
  bytes: number;
  content: Content;
}

/** Attributes set at the end, when nothing is written there any more. */
export interface ToFinish {
  path: string;
  entry: Entry;
  /** It has only what the side gives to new files. */
  isNew: boolean;
}

export interface ScanOptions {
  depth?: number;
  isLinkKept?: boolean;
}

/** One side of a copy. Paths are those of the side. */
export interface Place {
  /** How a human would name a path of it. */
  nameOf(path: string): string;
  /**
   * Everything at and below a path, the path alone with `depth` 0; undefined when nothing is there. A link at the path is
   * followed where it leads somewhere, unless `isLinkKept`.
   */
  scan(path: string, options?: ScanOptions): Promise<Tree | undefined>;
  /** SHA-256 in hex, by path; files that cannot be read are left out. */
  hash(paths: readonly string[]): Promise<Map<string, string>>;
  read(path: string): Content;
  /** Writes a file whole or not at all, with its parents. */
  put(file: FileToPut): Promise<void>;
  /** Writes small files in one request where the side can; returns failures by path. */
  putMany?(files: readonly FileToPut[]): Promise<Map<string, string>>;
  makeDirectories(paths: readonly string[]): Promise<void>;
  /** Removes links at paths of new files: writing the file would write to the target of the link. */
  removeLinks?(paths: readonly string[]): Promise<void>;
  /** Makes links, then sets modes and times; returns failures. */
  finish(what: readonly ToFinish[]): Promise<string[]>;
}

export function join(root: string, relative: string): string {
  if (relative === "") return root;
  return root.endsWith("/") ? `${root}${relative}` : `${root}/${relative}`;
}

/** The last name of a path; `.`, `..` and the root have none. */
export function baseName(path: string): string | undefined {
  const name = path.replace(/\/+$/, "").split("/").at(-1) ?? "";
  return ["", ".", ".."].includes(name) ? undefined : name;
}

/** The parent directory of an entry in a tree; for the first level it is the root, "". */
export function parentOf(relative: string): string {
  return relative.slice(0, Math.max(relative.lastIndexOf("/"), 0));
}

export async function readAll(content: Content): Promise<Uint8Array> {
  return "file" in content ? await readFile(content.file) : Buffer.concat(await Array.fromAsync(content));
}
