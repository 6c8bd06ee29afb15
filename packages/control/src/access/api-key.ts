/** Makes API keys, and the digests that the database holds instead of them. */
import { randomText } from "@vivarium/kit/id";
import { keyedDigest } from "./pepper.ts";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** A new API key: 40 characters of 62, about 238 random bits. */
export function newApiKey(): string {
  return `viv_${randomText(ALPHABET, 40)}`;
}

export function apiKeyDigest(pepper: Buffer, key: string): Buffer {
  return keyedDigest(pepper, "api-key", key);
}
