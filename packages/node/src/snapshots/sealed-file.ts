/**
 * A sealed file: encrypted segments in an order of their own (AES-256-GCM). Each file has a key of its own, derived from its
 * random salt, so segment n of two files never has the same key and nonce.
 *
 *   file     "VIVSEAL" 1 | salt, 32 bytes | segments
 *   segment  length of the content, uint32 big-endian | content, encrypted | tag, 16 bytes
 *
 * The nonce is the segment's number. Additional data are the beginning of the file and the label, which is the id of the snapshot
 * that the file was made for. The last segment is empty: a file that was cut, and one with swapped, missing or added
 * segments, does not open.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { readSync, writeSync } from "node:fs";
import { KIB } from "@vivarium/kit/sizes";
import { UnusableSnapshot } from "./page-sums.ts";

/** Largest content of a segment. */
export const SEGMENT_BYTES = 512 * KIB;
const MAGIC = Buffer.from("VIVSEAL\x01");
const SALT_BYTES = 32;
const LENGTH_BYTES = 4;
const TAG_BYTES = 16;
const CIPHER = "aes-256-gcm";

/** `label`: the same when the file is written and read. */
export interface Sealing {
  key: Uint8Array;
  label: string;
}

/** Writes a sealed file's segments, one after the other, to an open empty file. */
export class SealedWriter {
  readonly #fd: number;
  readonly #keys: SegmentKeys;
  #bytes = 0;

  constructor(fd: number, sealing: Sealing) {
    this.#fd = fd;
    const beginning = Buffer.concat([MAGIC, randomBytes(SALT_BYTES)]);
    this.#keys = new SegmentKeys(beginning, sealing);
    this.#append(beginning);
  }

  /** Writes a segment, whose content may be in parts. */
  write(...content: Buffer[]): void {
    const bytes = content.reduce((sum, part) => sum + part.length, 0);
    if (bytes === 0 || bytes > SEGMENT_BYTES) throw new Error(`a segment has ${bytes} bytes`);
    this.#seal(content, bytes);
  }

  /** Ends the file and returns its size. */
  end(): number {
    this.#seal([], 0);
    return this.#bytes;
  }

  #seal(content: Buffer[], bytes: number): void {
    const { key, nonce, data } = this.#keys.next();
    const cipher = createCipheriv(CIPHER, key, nonce).setAAD(data);
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32BE(bytes);
    const encrypted = content.map((part) => cipher.update(part));
    cipher.final();
    for (const part of [length, ...encrypted, cipher.getAuthTag()]) this.#append(part);
  }

  #append(bytes: Buffer): void {
    for (let done = 0; done < bytes.length; ) done += writeSync(this.#fd, bytes, done);
    this.#bytes += bytes.length;
  }
}

/** The contents of a sealed file's segments. Throws UnusableSnapshot at the first that does not open, or if one is missing. */
export function* readSealed(fd: number, sealing: Sealing): Generator<Buffer> {
  const beginning = readExactly(fd, MAGIC.length + SALT_BYTES);
  if (!beginning.subarray(0, MAGIC.length).equals(MAGIC)) throw damaged();
  const keys = new SegmentKeys(beginning, sealing);
  for (;;) {
    const length = readExactly(fd, LENGTH_BYTES).readUInt32BE();
    if (length > SEGMENT_BYTES) throw damaged();
    const content = open(keys, readExactly(fd, length + TAG_BYTES));
    if (length === 0) break;
    yield content;
  }
  if (readSync(fd, Buffer.alloc(1)) !== 0) throw damaged();
}

function open(keys: SegmentKeys, sealed: Buffer): Buffer {
  const { key, nonce, data } = keys.next();
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(data);
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  try {
    const content = decipher.update(sealed.subarray(0, -TAG_BYTES));
    decipher.final();
    return content;
  } catch {
    throw damaged();
  }
}

/** Key, nonce and additional data of the segments, in order. */
class SegmentKeys {
  readonly #key: Buffer;
  readonly #data: Buffer;
  #number = 0n;

  constructor(beginning: Buffer, { key, label }: Sealing) {
    const salt = beginning.subarray(MAGIC.length);
    this.#key = Buffer.from(hkdfSync("sha256", key, salt, "vivarium sealed file", 32));
    this.#data = Buffer.concat([beginning, Buffer.from(label)]);
  }

  next(): { key: Buffer; nonce: Buffer; data: Buffer } {
    const nonce = Buffer.alloc(12);
    nonce.writeBigUInt64BE(this.#number++, 4);
    return { key: this.#key, nonce, data: this.#data };
  }
}

function readExactly(fd: number, bytes: number): Buffer {
  const buffer = Buffer.allocUnsafe(bytes);
  for (let done = 0; done < bytes; ) {
    const got = readSync(fd, buffer, done, bytes - done, null);
    if (got === 0) throw damaged();
    done += got;
  }
  return buffer;
}

const damaged = () => new UnusableSnapshot("a sealed file is damaged");
