/**
 * Packs files of a folder into a store: only what differs from a base, compressed and sealed, in chunks that the store does
 * not have yet. What a killed or aborted attempt has put is found and not sent again. The archive exists once its
 * contents are in the store, which are put last; their name and key are all that opens it.
 */
import { stat } from "node:fs/promises";
import { ifThere } from "@vivarium/kit/if-there";
import { MIB } from "@vivarium/kit/sizes";
import { eachAtOnce } from "./at-once.ts";
import type { ChunkStore } from "./chunk-store.ts";
import { digestOf, SpaceSecret, sealChunk } from "./chunks.ts";
import {
  type ArchiveKey,
  type Contents,
  encodeWindows,
  putContents,
  requireFileName,
  type Window,
} from "./contents.ts";
import {
  type OpenFile,
  openRegular,
  rangesToRead,
  readWindow,
  requireUnchanged,
  windowsToRead,
} from "./read-window.ts";

/** A changed block costs at most the other changed blocks of its window. */
export const WINDOW_BYTES = MIB;
/** Each window takes up to four times its size of memory. */
const WINDOWS_AT_ONCE = 4;

/** A folder of which nothing changes any more. `id`: no other folder has it. */
export interface Base {
  dir: string;
  id: string;
}

export interface Source {
  dir: string;
  files: readonly string[];
  /** Files of the same names in it are what the folder's files were made from. */
  base?: Base;
}

/** Where an archive is. All archives of a space have its secret, and share chunks. */
export interface Space {
  store: ChunkStore;
  secret: Uint8Array;
}

export interface Progress {
  /** Bytes that were read and compared, of those that are to be. */
  read: number;
  toRead: number;
  /** Bytes of objects that were sent. */
  sent: number;
}

export interface PackOptions {
  signal?: AbortSignal;
  onProgress?: (progress: Readonly<Progress>) => void;
}

export interface Packed {
  /** Name of the object with the contents. */
  contents: string;
  /** Names of all chunks that the archive needs. */
  chunks: string[];
  /** Bytes that differ from the base, before compression. */
  differing: number;
  /** Bytes of the objects that this call has sent. */
  sent: number;
}

export async function packFolder(
  { store, secret }: Space,
  own: ArchiveKey,
  source: Source,
  { signal, onProgress }: PackOptions = {},
): Promise<Packed> {
  for (const name of source.files) requireFileName(name);
  const sender = new Sender({ store, secret: new SpaceSecret(secret) }, signal);
  await sender.look();
  const progress = { read: 0, toRead: 0, sent: 0 };
  const files: Contents["files"] = [];
  for (const name of source.files) {
    await using opened = await openPair(source, name);
    files.push(await packFile(sender, name, opened, { signal, progress, onProgress }));
  }
  const contents = {
    format: 1,
    window_bytes: WINDOW_BYTES,
    ...(source.base && { base: source.base.id }),
    files,
  } as const;
  const put = await putContents(store, own, contents, signal);
  return {
    contents: put.name,
    chunks: [...sender.used],
    differing: sender.differing,
    sent: sender.sent + put.bytes,
  };
}

async function packFile(
  sender: Sender,
  name: string,
  { own, base }: Pair,
  {
    signal,
    progress,
    onProgress,
  }: { signal: AbortSignal | undefined; progress: Progress } & Pick<PackOptions, "onProgress">,
): Promise<Contents["files"][number]> {
  const { bytes, mode } = own;
  if (base?.inode === own.inode) return { name, bytes, mode, over: "same", windows: "" };
  const ranges = await rangesToRead(own, base);
  progress.toRead += ranges.reduce((sum, { start, end }) => sum + end - start, 0);
  const windows: Window[] = [];
  await eachAtOnce(windowsToRead(ranges, WINDOW_BYTES), WINDOWS_AT_ONCE, signal, async (wanted) => {
    const found = await readWindow({ own, base, windowBytes: WINDOW_BYTES }, wanted);
    if (found) {
      const digest = await sender.send(found.content);
      windows.push({ window: found.window, digest, mask: found.mask });
    }
    progress.read += wanted.spans.reduce((sum, { start, end }) => sum + end - start, 0);
    progress.sent = sender.sent;
    onProgress?.(progress);
  });
  await requireUnchanged(own);
  return { name, bytes, mode, over: base ? "base" : "zeros", windows: encodeWindows(windows) };
}

/** Sends the chunks of one archive, each once. */
class Sender {
  readonly #space: { store: ChunkStore; secret: SpaceSecret };
  readonly #signal: AbortSignal | undefined;
  readonly #there = new Set<string>();
  readonly used = new Set<string>();
  differing = 0;
  sent = 0;

  constructor(space: { store: ChunkStore; secret: SpaceSecret }, signal: AbortSignal | undefined) {
    this.#space = space;
    this.#signal = signal;
  }

  /** Finds what is there. */
  async look(): Promise<void> {
    for await (const name of this.#space.store.names()) {
      this.#signal?.throwIfAborted();
      this.#there.add(name);
    }
  }

  /** Returns the digest. */
  async send(content: Buffer): Promise<Buffer> {
    const { store, secret } = this.#space;
    const digest = digestOf(content);
    const name = secret.nameOf(digest);
    this.differing += content.length;
    this.used.add(name);
    if (this.#there.has(name)) return digest;
    // A failure of this put fails the whole archive, so another window may count on it.
    this.#there.add(name);
    const object = await sealChunk(secret, digest, content);
    await store.put(name, object, this.#signal);
    this.sent += object.length;
    return digest;
  }
}

interface Pair extends AsyncDisposable {
  own: OpenFile;
  base: OpenFile | undefined;
}

/** Opens a file, and that of the same name in the base, if it has one. */
async function openPair({ dir, base }: Source, name: string): Promise<Pair> {
  const own = await openRegular(dir, name);
  let below: OpenFile | undefined;
  try {
    below = base && (await ifThere(openRegular(base.dir, name)));
    // A base that was deleted meanwhile is not one that lacks the file, and the archive would be as good as whole.
    if (base && !below) await stat(base.dir);
  } catch (error) {
    await own.handle.close();
    throw error;
  }
  return {
    own,
    base: below,
    [Symbol.asyncDispose]: async () => {
      await own.handle.close();
      await below?.handle.close();
    },
  };
}
