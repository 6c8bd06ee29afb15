/** Reads an archive back against its digests, without writing anything. What it has of its base is not looked at. */
import { eachAtOnce } from "./at-once.ts";
import { fetchChunk, SpaceSecret } from "./chunks.ts";
import { type ArchiveKey, fetchContents, windowsOf } from "./contents.ts";
import type { Space } from "./pack.ts";
import { UnusableArchive } from "./unusable-archive.ts";

const WINDOWS_AT_ONCE = 4;

export interface Damage {
  /** A file that cannot be unpacked; undefined: no file can. */
  file: string | undefined;
  /** Name of the object. */
  object: string;
  error: UnusableArchive;
}

export interface ReadBackOptions {
  signal?: AbortSignal;
  /** Called with the bytes of each chunk, before compression, before the next one is read. */
  onRead?: (bytes: number) => Promise<void>;
}

/** All damages. Fails if the store does not answer. */
export async function readBack(
  { store, secret }: Space,
  own: ArchiveKey,
  name: string,
  { signal, onRead }: ReadBackOptions = {},
): Promise<Damage[]> {
  const space = { store, secret: new SpaceSecret(secret) };
  const damages: Damage[] = [];
  const lookAt = async <T>(file: string | undefined, object: string, work: Promise<T>) => {
    try {
      return await work;
    } catch (error) {
      if (!(error instanceof UnusableArchive)) throw error;
      damages.push({ file, object, error });
      return undefined;
    }
  };
  const contents = await lookAt(undefined, name, fetchContents(store, own, name, signal));
  for (const file of contents?.files ?? [])
    await eachAtOnce(
      windowsOf(file, contents?.window_bytes ?? 0),
      WINDOWS_AT_ONCE,
      signal,
      async ({ digest, bytes }) => {
        await lookAt(file.name, space.secret.nameOf(digest), fetchChunk(space, digest, bytes, signal));
        await onRead?.(bytes);
      },
    );
  return damages;
}
