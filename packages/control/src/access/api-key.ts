/** Makes API keys, and the digests that the database holds instead of them. */
import { crc32 } from "node:zlib";
import { randomText } from "@vivarium/kit/id";
import { keyedDigest } from "./pepper.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

const PREFIX = "viv_";
const TOKEN_PREFIX = "viv_st_";
const OPERATOR_PREFIX = "viv_op_";
/** About 202 bits. */
const RANDOM_CHARS = 34;
const SUM_CHARS = 6;
/** Characters of a key that lists show: enough to know it again. */
const SHOWN_CHARS = 10;

/**
 * A new API key: `viv_`, random characters, and the CRC-32 of these as a number of base 62. By the sum a scanner
 * distinguishes a key that leaked into a file from other text of this form. Keys of earlier versions have no sum.
 */
export function newApiKey(): string {
  return newCredential(PREFIX);
}

/** A new scoped token: as a key, after `viv_st_`. */
export function newScopedToken(): string {
  return newCredential(TOKEN_PREFIX);
}

/** A new key of the operator: as a key, after `viv_op_`. */
export function newOperatorKey(): string {
  return newCredential(OPERATOR_PREFIX);
}

export function isOperatorKey(credential: string): boolean {
  return credential.startsWith(OPERATOR_PREFIX);
}

export function isScopedToken(credential: string): boolean {
  return credential.startsWith(TOKEN_PREFIX);
}

export function scopedTokenDigest(pepper: Buffer, token: string): Buffer {
  return keyedDigest(pepper, "scoped-token", token);
}

function newCredential(prefix: string): string {
  const random = randomText(ALPHABET, RANDOM_CHARS);
  return `${prefix}${random}${sumOf(random)}`;
}

/** Whether a text has the form and the sum of a key. */
export function hasKeySum(key: string): boolean {
  const body = key.startsWith(PREFIX) ? key.slice(PREFIX.length) : "";
  return body.length === RANDOM_CHARS + SUM_CHARS && body.endsWith(sumOf(body.slice(0, RANDOM_CHARS)));
}

export function shownPartOf(key: string): string {
  return key.slice(0, SHOWN_CHARS);
}

function sumOf(random: string): string {
  let rest = crc32(random);
  let digits = "";
  for (let n = 0; n < SUM_CHARS; n++) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

export function apiKeyDigest(pepper: Buffer, key: string): Buffer {
  return keyedDigest(pepper, "api-key", key);
}
