/** Loads a key of 32 random bytes from a file outside the database, which is made on the first start. */
import { randomBytes } from "node:crypto";
import { link, readFile, rm } from "node:fs/promises";
import { writeDurably } from "@vivarium/kit/durable-file";
import { randomId } from "@vivarium/kit/id";

const KEY_BYTES = 32;

/** If several processes start together, the first one makes the file for all. */
export async function loadKeyFile(file: string): Promise<Buffer> {
  const key = (await read(file)) ?? (await make(file));
  if (key.length === KEY_BYTES) return key;
  throw new Error(`${file} must hold ${KEY_BYTES} bytes, it has ${key.length}`);
}

async function read(file: string): Promise<Buffer | null> {
  return await readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
}

async function make(file: string): Promise<Buffer> {
  const own = `${file}.${randomId()}`;
  await writeDurably(own, randomBytes(KEY_BYTES), 0o600);
  await link(own, file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
  await rm(own);
  return await readFile(file);
}
