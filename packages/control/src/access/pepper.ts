/**
 * Loads the pepper, 32 random bytes in a file outside the database. Digests of keys use it, so that a stolen database
 * alone does not allow testing guesses.
 */
import { createHmac } from "node:crypto";
import path from "node:path";
import { loadKeyFile } from "./key-file.ts";

export async function loadPepper(controlDir: string): Promise<Buffer> {
  return await loadKeyFile(path.join(controlDir, "pepper"));
}

/** Digest with the pepper. `purpose` separates digests of different things. */
export function keyedDigest(pepper: Buffer, purpose: string, text: string): Buffer {
  return createHmac("sha256", pepper).update(`${purpose}\0`).update(text).digest();
}
