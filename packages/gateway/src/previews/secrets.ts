/** Compares secrets by their hashes, and hashes in constant time. */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";

/** Compared when there is no secret, so that the time is the same: a hash without a known preimage. */
const NOTHING = "00".repeat(32);

export function matchesHash(presented: string, sha256Hex: string | undefined): boolean {
  const actual = createHash("sha256").update(presented).digest();
  const isEqual = equalBytes(actual, Buffer.from(sha256Hex ?? NOTHING, "hex"));
  return isEqual && sha256Hex !== undefined;
}

export function macOf(keyHex: string, text: string): Buffer {
  return createHmac("sha256", Buffer.from(keyHex, "hex")).update(text).digest();
}

export function equalBytes(a: Buffer, b: Buffer): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}
