/**
 * Heads of chains in a file beside the keys, outside of the database. Hazard: who can write to the database puts back an
 * older state of log, links and head, whose seals are right. The chain then lacks a head that was seen before.
 */
import { mkdir, readFile } from "node:fs/promises";
import path from "node:path";
import { writeDurably } from "@vivarium/kit/durable-file";

export interface KeptHead {
  seq: number;
  hash: string;
  at: string;
}

/** In a folder of its own: a backup has the keys and not this file, which may be newer than the backup's rows. */
export function keptHeadsFile(controlDir: string): string {
  return path.join(controlDir, "audit", "heads.json");
}

export async function readKeptHeads(file: string): Promise<Record<string, KeptHead>> {
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "{}";
    throw error;
  });
  return JSON.parse(text);
}

export async function writeKeptHeads(file: string, heads: Record<string, KeptHead>): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await writeDurably(file, `${JSON.stringify(heads, null, 2)}\n`, 0o600);
}
