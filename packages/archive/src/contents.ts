/**
 * The contents of an archive: its files, and where their bytes are. They are an object of their own, sealed with the archive's key
 * and named by the digest of all its bytes. Without that key no chunk can be found or opened that only this archive has.
 *
 * A file's windows are records of equal length, in order: number, uint32 big-endian | digest of the chunk, 32 bytes | a bit for
 * each block of the window that the chunk has, lowest bit first. Blocks without a bit are those of the base, or zeros.
 */
import { hkdfSync } from "node:crypto";
import { MIB } from "@vivarium/kit/sizes";
import { z } from "zod";
import type { ChunkStore } from "./chunk-store.ts";
import { DIGEST_BYTES, digestOf, SECRET_BYTES } from "./chunks.ts";
import { fromObject, objectBytes, toObject } from "./envelope.ts";
import { BLOCK_BYTES } from "./read-window.ts";
import { UnusableArchive } from "./unusable-archive.ts";

const FORMAT = 1;
const NUMBER_BYTES = 4;
/** Enough for 600 GiB of windows. */
export const MOST_CONTENTS_BYTES = 64 * MIB;
const FILE_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/;

/** A key of the archive's own, and a text that it is sealed for: its id. */
export interface ArchiveKey {
  key: Uint8Array;
  label: string;
}

const FileContents = z.strictObject({
  name: z.string().regex(FILE_NAME),
  bytes: z.int().min(0),
  mode: z.int().min(0).max(0o777),
  /** `same`: it is the base's file. `base`: the blocks without a bit are those of the base's file. */
  over: z.enum(["zeros", "base", "same"]),
  windows: z.base64(),
});
type FileContents = z.infer<typeof FileContents>;

export const Contents = z.strictObject({
  format: z.literal(FORMAT),
  window_bytes: z
    .int()
    .min(BLOCK_BYTES * 8)
    .max(64 * MIB)
    .multipleOf(BLOCK_BYTES * 8),
  /** Identity of the folder that this is the difference to. */
  base: z.string().optional(),
  files: z.array(FileContents),
});
export type Contents = z.infer<typeof Contents>;

/** A window of a file, with the digest of its chunk. */
export interface Window {
  window: number;
  digest: Buffer;
  mask: Buffer;
}

export function requireFileName(name: string): void {
  if (!FILE_NAME.test(name)) throw new Error(`no name of a file in an archive: ${JSON.stringify(name)}`);
}

export function encodeWindows(windows: readonly Window[]): string {
  const records = windows.toSorted((one, other) => one.window - other.window).map(recordOf);
  return Buffer.concat(records).toString("base64");
}

/** A window's chunk, with the places of its blocks in the file. The last block of a file may be shorter. */
interface PlacedChunk {
  digest: Buffer;
  places: number[];
  bytes: number;
}

export function* windowsOf(file: FileContents, windowBytes: number): Generator<PlacedChunk> {
  const records = Buffer.from(file.windows, "base64");
  const recordBytes = NUMBER_BYTES + DIGEST_BYTES + windowBytes / BLOCK_BYTES / 8;
  for (let at = 0; at < records.length; at += recordBytes) {
    const record = records.subarray(at, at + recordBytes);
    const first = record.readUInt32BE() * windowBytes;
    const places = placesIn(record.subarray(NUMBER_BYTES + DIGEST_BYTES), first);
    const bytes = places.reduce((sum, place) => sum + Math.min(BLOCK_BYTES, file.bytes - place), 0);
    yield { digest: record.subarray(NUMBER_BYTES, NUMBER_BYTES + DIGEST_BYTES), places, bytes };
  }
}

function placesIn(mask: Buffer, first: number): number[] {
  const places: number[] = [];
  for (let bit = 0; bit < mask.length * 8; bit++)
    if (((mask[bit >> 3] ?? 0) & (1 << (bit & 7))) !== 0) places.push(first + bit * BLOCK_BYTES);
  return places;
}

/** Puts the contents into the store, and returns their name. */
export async function putContents(
  store: ChunkStore,
  own: ArchiveKey,
  contents: Contents,
  signal?: AbortSignal,
): Promise<{ name: string; bytes: number }> {
  const object = await toObject(sealingOf(own), Buffer.from(JSON.stringify(contents)));
  const name = digestOf(object).toString("hex");
  await store.put(name, object, signal);
  return { name, bytes: object.length };
}

/** Throws UnusableArchive unless they are those that were put under this name with this key and label. */
export async function fetchContents(
  store: ChunkStore,
  own: ArchiveKey,
  name: string,
  signal?: AbortSignal,
): Promise<Contents> {
  const what = `the object ${name}`;
  const object = await store.get(name, objectBytes(MOST_CONTENTS_BYTES), signal);
  if (digestOf(object).toString("hex") !== name)
    throw new UnusableArchive("altered", `${what} is not what was put under its name`);
  const text = await fromObject(sealingOf(own), object, { what, mostBytes: MOST_CONTENTS_BYTES }).catch(
    (error: unknown) => {
      // Its bytes are those that were put, so the key or the label is another one.
      if (error instanceof UnusableArchive && error.reason === "altered")
        throw new UnusableArchive("wrong_key", `${what} was sealed with another key, or for another label`);
      throw error;
    },
  );
  const parsed = Contents.safeParse(JSON.parse(text.toString()));
  if (!parsed.success)
    throw new UnusableArchive("unknown_form", `${what} is in a form that this release does not know`);
  return parsed.data;
}

function sealingOf({ key, label }: ArchiveKey) {
  if (key.length !== SECRET_BYTES) throw new Error("the key of an archive has another length");
  const derived = Buffer.from(hkdfSync("sha256", key, "", "vivarium archive: contents", SECRET_BYTES));
  return { key: derived, name: label };
}

function recordOf({ window, digest, mask }: Window): Buffer {
  const number = Buffer.alloc(NUMBER_BYTES);
  number.writeUInt32BE(window);
  return Buffer.concat([number, digest, mask]);
}
