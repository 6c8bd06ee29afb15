/**
 * Saves the database's rows in control's directory before the schema changes, in the form of a backup's rows: who goes
 * back to the release of before loads them (docs/operate/update.md).
 */
import { open, readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath } from "@vivarium/kit/durable-file";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { dumpRows } from "./dump-rows.ts";

const KEPT = 2;
/** As `rows-0017-20270301T093000123.jsonl`: the schema, and the time in UTC. */
const NAME = /^rows-(\d{4,})-\d{8}T\d{9}\.jsonl$/;

/** Returns the file, which is whole and durable. */
export async function saveRows(url: string, dir: string, schema: number): Promise<string> {
  const stamp = new Date().toISOString().replaceAll(/[-:.Z]/g, "");
  const file = path.join(dir, `rows-${String(schema).padStart(4, "0")}-${stamp}.jsonl`);
  const partial = `${file}.tmp`;
  try {
    await writeDump(url, partial);
    await rename(partial, file);
    await syncPath(dir);
  } catch (cause) {
    await rm(partial, { force: true });
    const reason = hasCode(cause, "ENOSPC") ? "the disk is full" : messageOf(cause);
    throw new Error(
      `the rows cannot be saved in ${dir} before the schema changes: ${reason}. Nothing was changed`,
      { cause },
    );
  }
  await removeOlder(dir);
  return file;
}

async function writeDump(url: string, file: string): Promise<void> {
  const handle = await open(file, "w", 0o600);
  try {
    await dumpRows(url, (line) => handle.appendFile(`${line}\n`));
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Keeps the newest file of each of the last two schemas: a release with two migrations, of which the second one fails at
 * every start, saves the rows between them again and again. Also removes what a save that was killed has left.
 */
async function removeOlder(dir: string): Promise<void> {
  const names = await readdir(dir);
  const whole = names
    .filter((name) => NAME.test(name))
    .toSorted((a, b) => (stampOf(a) < stampOf(b) ? 1 : -1));
  const newest = new Map<string, string>();
  for (const name of whole) if (!newest.has(schemaOf(name))) newest.set(schemaOf(name), name);
  const kept = [...newest.values()].slice(0, KEPT);
  const partial = names.filter((name) => name.endsWith(".tmp") && NAME.test(name.slice(0, -".tmp".length)));
  for (const name of [...whole.filter((one) => !kept.includes(one)), ...partial])
    await rm(path.join(dir, name), { force: true });
}

const schemaOf = (name: string) => NAME.exec(name)?.[1] ?? "";
const stampOf = (name: string) => name.slice(name.lastIndexOf("-"));
