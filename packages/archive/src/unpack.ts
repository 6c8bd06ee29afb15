/**
 * Unpacks an archive to a folder. The folder appears by a rename, once every chunk was compared with its digest, every file is
 * durable, and the caller has looked at all of it. Before that, and after a kill, there is nothing but a partial folder,
 * which `removePartial` finds by its name.
 */
import { randomBytes } from "node:crypto";
import { type FileHandle, link, lstat, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import path from "node:path";
import { syncPath } from "@vivarium/kit/durable-file";
import { ifThere } from "@vivarium/kit/if-there";
import { hasCode } from "@vivarium/kit/unknown-error";
import { eachAtOnce } from "./at-once.ts";
import type { ChunkStore } from "./chunk-store.ts";
import { fetchChunk, SpaceSecret } from "./chunks.ts";
import { type ArchiveKey, type Contents, fetchContents, windowsOf } from "./contents.ts";
import { copySparse } from "./copy-sparse.ts";
import type { Base, Space } from "./pack.ts";
import { BLOCK_BYTES } from "./read-window.ts";
import { UnusableArchive } from "./unusable-archive.ts";
import { writeAll } from "./write-all.ts";

type File = Contents["files"][number];

const PARTIAL = /\.[0-9a-f]{16}\.partial$/;
const DIR_MODE = 0o711;
/** Each window takes up to three times its size of memory. */
const WINDOWS_AT_ONCE = 8;

export interface UnpackOptions {
  /** The folder that the archive is the difference to. */
  base?: Base;
  signal?: AbortSignal;
  /** Called after each chunk, with the bytes that were fetched so far, before compression. */
  onProgress?: (fetched: number) => void;
  /** Looks at the whole folder, or changes it, before it appears. If it throws, the folder does not. */
  beforeVisible?: (dir: string) => Promise<void>;
}

/** `contents`: the name that `packFolder` has returned. `dir` must not be there. */
export async function unpackFolder(
  { store, secret }: Space,
  own: ArchiveKey,
  { contents: name, dir }: { contents: string; dir: string },
  options: UnpackOptions = {},
): Promise<void> {
  await requireAbsent(dir);
  const contents = await fetchContents(store, own, name, options.signal);
  requireBase(contents, options.base);
  const partial = `${dir}.${randomBytes(8).toString("hex")}.partial`;
  await mkdir(partial, { mode: DIR_MODE });
  try {
    const space = { store, secret: new SpaceSecret(secret) };
    await writeFiles(space, contents, partial, options);
    await options.beforeVisible?.(partial);
    options.signal?.throwIfAborted();
    await syncPath(partial);
    await rename(partial, dir);
  } catch (error) {
    await rm(partial, { recursive: true, force: true });
    throw error;
  }
  await syncPath(path.dirname(dir));
}

/**
 * Removes what killed calls have left in a folder's parent, of the folder `of` or of all. None may run. Returns the names.
 */
export async function removePartial(parent: string, of?: string): Promise<string[]> {
  const isLeft = (name: string) => PARTIAL.test(name) && (of === undefined || name.startsWith(`${of}.`));
  const left = (await readdir(parent)).filter(isLeft);
  for (const name of left) await rm(path.join(parent, name), { recursive: true, force: true });
  return left;
}

async function writeFiles(
  space: { store: ChunkStore; secret: SpaceSecret },
  contents: Contents,
  dir: string,
  { base, signal, onProgress }: UnpackOptions,
): Promise<void> {
  let fetched = 0;
  const { window_bytes: windowBytes } = contents;
  for (const file of contents.files) {
    signal?.throwIfAborted();
    const target = path.join(dir, file.name);
    const below = base && path.join(base.dir, file.name);
    if (file.over !== "zeros") await requireBaseFile(file, below);
    if (below && file.over === "same") {
      await shareFile(below, target, file.mode);
      continue;
    }
    if (below && file.over === "base") await copySparse(below, target);
    await using handle = await open(target, file.over === "base" ? "r+" : "wx", 0o600);
    await handle.truncate(file.bytes);
    await eachAtOnce(windowsOf(file, windowBytes), WINDOWS_AT_ONCE, signal, async (chunk) => {
      const content = await fetchChunk(space, chunk.digest, chunk.bytes, signal);
      await writeBlocks(handle, chunk.places, content);
      fetched += content.length;
      onProgress?.(fetched);
    });
    await handle.chmod(file.mode);
    await handle.sync();
  }
}

/** Neighbouring blocks are written at once. */
async function writeBlocks(handle: FileHandle, places: readonly number[], content: Buffer): Promise<void> {
  for (let first = 0; first < places.length; ) {
    let end = first + 1;
    while (end < places.length && places[end] === (places[first] as number) + (end - first) * BLOCK_BYTES)
      end++;
    const bytes = content.subarray(first * BLOCK_BYTES, end * BLOCK_BYTES);
    await writeAll(handle, bytes, places[first] as number);
    first = end;
  }
}

/** The base's file itself, or a copy where that file system cannot be shared. Its mode stays as it is. */
async function shareFile(source: string, target: string, mode: number): Promise<void> {
  try {
    await link(source, target);
  } catch (error) {
    if (!hasCode(error, "EXDEV")) throw error;
    await copySparse(source, target);
    await using handle = await open(target, "r+");
    await handle.chmod(mode);
    await handle.sync();
  }
}

async function requireAbsent(dir: string): Promise<void> {
  if (await ifThere(lstat(dir))) throw new Error(`${path.basename(dir)} is there already`);
}

function requireBase({ base: wanted }: Contents, base: Base | undefined): void {
  if (wanted === undefined || wanted === base?.id) return;
  const found = base ? `, not to ${base.id}` : ", which was not given";
  throw new UnusableArchive("wrong_base", `the archive is the difference to ${wanted}${found}`);
}

async function requireBaseFile({ name, bytes, over }: File, below: string | undefined): Promise<void> {
  const found = below && (await ifThere(stat(below)));
  if (!found || (over === "same" && found.size !== bytes))
    throw new UnusableArchive("wrong_base", `the base's ${name} is not the one that was there before`);
}
