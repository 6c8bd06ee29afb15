/**
 * The pepper: 32 random bytes in a file outside the database. Digests of keys are made with it, so that a stolen
 * database alone does not let anybody test guesses.
 */
import { createHmac, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { writeFileDurably } from "./write-file-durably.ts";

const PEPPER_BYTES = 32;

export async function loadPepper(controlDir: string): Promise<Buffer> {
  const file = path.join(controlDir, "pepper");
  const known = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (known) {
    if (known.length !== PEPPER_BYTES)
      throw new Error(`${file} must hold ${PEPPER_BYTES} bytes, it has ${known.length}`);
    return known;
  }
  const pepper = randomBytes(PEPPER_BYTES);
  await writeFileDurably(file, pepper);
  return pepper;
}

/** Digest under the pepper. `purpose` keeps digests of different things apart. */
export function keyedDigest(pepper: Buffer, purpose: string, text: string): Buffer {
  return createHmac("sha256", pepper).update(`${purpose}\0`).update(text).digest();
}
