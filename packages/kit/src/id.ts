import { randomBytes } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789";
/** The largest multiple of 36 that fits a byte: bytes from here on would favour the first letters. */
const UNBIASED = 252;

/** `length` characters of [a-z0-9] from the system's random source, without modulo bias. */
export function randomId(length = 21): string {
  let id = "";
  while (id.length < length) {
    for (const byte of randomBytes(length * 2)) {
      if (byte >= UNBIASED) continue;
      id += ALPHABET[byte % ALPHABET.length];
      if (id.length === length) break;
    }
  }
  return id;
}
