/**
 * Keys of the key-encryption key file (control/src/secrets/kek-text.ts) that were removed while a backup was made. Hazard:
 * a rotation ends after the rows were read, and its operator removes the key that those rows are sealed with.
 */
import { readFile, writeFile } from "node:fs/promises";
import { ifThere } from "@vivarium/kit/if-there";

const KEY = /^kek_[1-9][0-9]{0,8}:[A-Za-z0-9_-]{43}=?$/;

/**
 * Puts the keys that `earlier` alone has into `file`, before the others: the last key of a file is the one that seals.
 * Returns their names.
 */
export async function addEarlierKeks(file: string, earlier: string): Promise<string[]> {
  const now = (await ifThere(readFile(file, "utf8"))) ?? "";
  const before = (await ifThere(readFile(earlier, "utf8"))) ?? "";
  const present = keysIn(now);
  const removed = [...keysIn(before)].filter(([name]) => !present.has(name));
  const lines = removed.map(([, key]) => `${key}\n`);
  if (lines.length > 0) await writeFile(file, lines.join("") + now, { mode: 0o600 });
  return removed.map(([name]) => name);
}

/** By name, in their order. */
function keysIn(text: string): Map<string, string> {
  const lines = text.split("\n").filter((line) => !line.trim().startsWith("#"));
  const keys = lines.flatMap((line) => line.split(",")).map((key) => key.trim());
  return new Map(keys.filter((key) => KEY.test(key)).map((key) => [key.slice(0, key.indexOf(":")), key]));
}
