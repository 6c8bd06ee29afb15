/**
 * Makes the header of an encrypted disk (LUKS 1, on-disk format specification 1.2.3). `qemu-img` makes the same one, but
 * measures the processor for two seconds first, to choose how slow a guess of the passphrase is. This passphrase has 256 random
 * bits, so nobody guesses it, and the least number of iterations does.
 */
import { createCipheriv, createHash, pbkdf2Sync, randomBytes, randomUUID } from "node:crypto";

const SECTOR_BYTES = 512;
/** AES-256 in XTS mode takes two keys. */
const KEY_BYTES = 64;
const DIGEST_BYTES = 20;
const SALT_BYTES = 32;
const ITERATIONS = 1000;
/** How many pieces the disk's key is split into. QEMU opens no other number. */
const STRIPES = 4000;
const SLOTS = 8;
const FIRST_SLOT_SECTOR = 8;
/** The material of a key slot, in whole units of 4 KiB as QEMU writes it. */
const SLOT_SECTORS = roundUp((KEY_BYTES * STRIPES) / SECTOR_BYTES, 8);
const SLOT_IS_USED = 0x00ac71f3;
const SLOT_IS_FREE = 0x0000dead;
const HASH = "sha256";
const HASH_BYTES = 32;

/** Where the encrypted data would begin if it followed the header. */
export const LUKS_HEADER_BYTES = (FIRST_SLOT_SECTOR + SLOTS * SLOT_SECTORS) * SECTOR_BYTES;

/** The header of a disk with a new random key, which the passphrase opens. Its end is zeros, which need not be written. */
export function makeLuksHeader(passphrase: string): Buffer {
  const key = randomBytes(KEY_BYTES);
  const salts = { digest: randomBytes(SALT_BYTES), slot: randomBytes(SALT_BYTES) };
  const digest = pbkdf2Sync(key, salts.digest, ITERATIONS, DIGEST_BYTES, HASH);
  const head = Buffer.concat([
    Buffer.from("LUKS\xba\xbe\0\x01", "latin1"),
    ...["aes", "xts-plain64", HASH].map((name) => padded(name, 32)),
    uint32s(FIRST_SLOT_SECTOR + SLOTS * SLOT_SECTORS, KEY_BYTES),
    ...[digest, salts.digest, uint32s(ITERATIONS), padded(randomUUID(), 40)],
    ...Array.from({ length: SLOTS }, (_, slot) => describeSlot(slot, salts.slot)),
  ]);
  const opener = pbkdf2Sync(passphrase, salts.slot, ITERATIONS, KEY_BYTES, HASH);
  const material = encryptSectors(opener, split(key));
  const header = Buffer.alloc(FIRST_SLOT_SECTOR * SECTOR_BYTES + material.length);
  head.copy(header);
  material.copy(header, FIRST_SLOT_SECTOR * SECTOR_BYTES);
  return header;
}

/** Only the first slot is used. */
function describeSlot(slot: number, salt: Buffer): Buffer {
  const isUsed = slot === 0;
  return Buffer.concat([
    uint32s(isUsed ? SLOT_IS_USED : SLOT_IS_FREE, isUsed ? ITERATIONS : 0),
    isUsed ? salt : Buffer.alloc(SALT_BYTES),
    uint32s(FIRST_SLOT_SECTOR + slot * SLOT_SECTORS, STRIPES),
  ]);
}

/** Splits the key so that every piece is needed for it: all are random but the last. */
function split(key: Buffer): Buffer {
  const pieces = randomBytes(KEY_BYTES * STRIPES);
  let sum: Buffer = Buffer.alloc(KEY_BYTES);
  for (let at = 0; at < pieces.length - KEY_BYTES; at += KEY_BYTES)
    sum = diffuse(xor(sum, pieces.subarray(at, at + KEY_BYTES)));
  xor(sum, key).copy(pieces, pieces.length - KEY_BYTES);
  return pieces;
}

/** Replaces each part of a hash's length by the hash of its number and itself. */
function diffuse(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += HASH_BYTES) {
    const part = bytes.subarray(at, at + HASH_BYTES);
    parts.push(createHash(HASH).update(uint32s(parts.length)).update(part).digest());
  }
  return Buffer.concat(parts);
}

function encryptSectors(key: Buffer, bytes: Buffer): Buffer {
  const sectors: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += SECTOR_BYTES) {
    const tweak = Buffer.alloc(16);
    tweak.writeUInt32LE(sectors.length);
    const cipher = createCipheriv("aes-256-xts", key, tweak);
    sectors.push(cipher.update(bytes.subarray(at, at + SECTOR_BYTES)));
  }
  return Buffer.concat(sectors);
}

const xor = (one: Buffer, other: Buffer) => one.map((byte, i) => byte ^ (other[i] as number)) as Buffer;

function uint32s(...numbers: number[]): Buffer {
  const bytes = Buffer.alloc(4 * numbers.length);
  for (const [i, number] of numbers.entries()) bytes.writeUInt32BE(number, 4 * i);
  return bytes;
}

function padded(text: string, bytes: number): Buffer {
  const field = Buffer.alloc(bytes);
  field.write(text, "latin1");
  return field;
}

function roundUp(count: number, unit: number): number {
  return Math.ceil(count / unit) * unit;
}
