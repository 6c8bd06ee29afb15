/** Loads a key of 32 random bytes from a file outside the database, which is made on the first start. */
import { randomBytes } from "node:crypto";
import { readOrMake } from "./make-once.ts";

const KEY_BYTES = 32;

export async function loadKeyFile(file: string): Promise<Buffer> {
  const key = await readOrMake(file, () => randomBytes(KEY_BYTES));
  if (key.length === KEY_BYTES) return key;
  throw new Error(`${file} must hold ${KEY_BYTES} bytes, it has ${key.length}`);
}
