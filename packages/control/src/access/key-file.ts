/** 32 random bytes in a file outside the database, made once. */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { writeFileDurably } from "./write-file-durably.ts";

const KEY_BYTES = 32;

export async function loadKeyFile(file: string): Promise<Buffer> {
  const known = await readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  if (known) {
    if (known.length !== KEY_BYTES)
      throw new Error(`${file} must hold ${KEY_BYTES} bytes, it has ${known.length}`);
    return known;
  }
  const key = randomBytes(KEY_BYTES);
  await writeFileDurably(file, key);
  return key;
}
