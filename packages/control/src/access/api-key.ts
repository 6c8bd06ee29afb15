import { randomBytes } from "node:crypto";
import { keyedDigest } from "./pepper.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const KEY_CHARS = 40;
/** The largest multiple of 62 that fits a byte. */
const UNBIASED = 248;

/** A new API key: 40 characters of 62, about 238 random bits. */
export function newApiKey(): string {
  let key = "";
  while (key.length < KEY_CHARS) {
    for (const byte of randomBytes(KEY_CHARS * 2)) {
      if (byte < UNBIASED && key.length < KEY_CHARS) key += ALPHABET[byte % ALPHABET.length];
    }
  }
  return `viv_${key}`;
}

export function apiKeyDigest(pepper: Buffer, key: string): Buffer {
  return keyedDigest(pepper, "api-key", key);
}
