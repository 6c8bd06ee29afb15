/** Comparisons in constant time: hashes are compared, never the secrets themselves. */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";

/** A hash without a known preimage, for comparisons when there is no secret. */
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
