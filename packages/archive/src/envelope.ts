/**
 * The form of an object: compressed if that makes it smaller, then sealed (AES-256-GCM).
 *
 *   object   "VIVARCH" 1 | nonce, 12 bytes | length of the sealed part, uint32 big-endian | sealed part | tag, 16 bytes
 *   sealed   0: the content follows as it is, 1: compressed (zstd)
 *
 * Additional data are everything before the sealed part, and the name for which it is sealed. The nonce is random: another
 * release may compress the same content into other bytes, under the same key.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { zstdCompress, zstdDecompress } from "node:zlib";
import { UnusableArchive } from "./unusable-archive.ts";

const MAGIC = Buffer.from("VIVARCH\x01");
const NONCE_BYTES = 12;
const LENGTH_BYTES = 4;
const TAG_BYTES = 16;
const HEAD_BYTES = MAGIC.length + NONCE_BYTES + LENGTH_BYTES;
const CIPHER = "aes-256-gcm";
const PLAIN = 0;
const COMPRESSED = 1;
const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Most bytes of an object with this much content. */
export const objectBytes = (contentBytes: number) => HEAD_BYTES + 1 + contentBytes + TAG_BYTES;

export interface Sealing {
  key: Uint8Array;
  /** It opens for the same name alone. */
  name: string;
}

export async function toObject({ key, name }: Sealing, content: Buffer): Promise<Buffer> {
  const compressed = await compress(content);
  const isSmaller = compressed.length < content.length;
  const form = Buffer.from([isSmaller ? COMPRESSED : PLAIN]);
  const bytes = isSmaller ? compressed : content;
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(form.length + bytes.length);
  const nonce = randomBytes(NONCE_BYTES);
  const head = Buffer.concat([MAGIC, nonce, length]);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(Buffer.concat([head, Buffer.from(name)]));
  const sealed = [cipher.update(form), cipher.update(bytes), cipher.final()];
  return Buffer.concat([head, ...sealed, cipher.getAuthTag()]);
}

/** Throws UnusableArchive unless it is the object that was made with this key and name. `what`: begins the messages. */
export async function fromObject(
  { key, name }: Sealing,
  object: Buffer,
  { what, mostBytes }: { what: string; mostBytes: number },
): Promise<Buffer> {
  const packed = open({ key, name }, object, what);
  const content = packed.subarray(1);
  if (packed[0] === PLAIN) return content;
  if (packed[0] !== COMPRESSED)
    throw new UnusableArchive("unknown_form", `${what} is in a form that this release does not know`);
  try {
    return await decompress(content, { maxOutputLength: mostBytes });
  } catch {
    throw new UnusableArchive("altered", `${what} cannot be decompressed to at most ${mostBytes} bytes`);
  }
}

function open({ key, name }: Sealing, object: Buffer, what: string): Buffer {
  const head = object.subarray(0, HEAD_BYTES);
  if (head.length < HEAD_BYTES)
    throw new UnusableArchive("cut_short", `${what} ends after ${object.length} bytes`);
  if (!head.subarray(0, MAGIC.length).equals(MAGIC)) throw notWhatWasPut(head, what);
  const sealed = object.subarray(HEAD_BYTES);
  const expected = head.readUInt32BE(HEAD_BYTES - LENGTH_BYTES) + TAG_BYTES;
  if (sealed.length !== expected)
    throw new UnusableArchive(
      sealed.length < expected ? "cut_short" : "too_long",
      `${what} has ${object.length} bytes of ${HEAD_BYTES + expected}`,
    );
  const nonce = head.subarray(MAGIC.length, MAGIC.length + NONCE_BYTES);
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(Buffer.concat([head, Buffer.from(name)])).setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch {
    throw new UnusableArchive("altered", `${what} is not what was put under its name`);
  }
}

function notWhatWasPut(head: Buffer, what: string): UnusableArchive {
  const isLater = head.subarray(0, MAGIC.length - 1).equals(MAGIC.subarray(0, -1));
  return isLater
    ? new UnusableArchive("unknown_form", `${what} is in a form that this release does not know`)
    : new UnusableArchive("altered", `${what} is not what was put under its name`);
}
