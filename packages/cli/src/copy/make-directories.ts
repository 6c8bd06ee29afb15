import { mkdir, stat } from "node:fs/promises";
import path from "node:path";
import { hasCode } from "@vivarium/kit/unknown-error";

/**
 * Makes a directory and its missing parents. Node's own `recursive` never ends when a parent exists and cannot contain
 * a directory, as in /proc (seen in Node 24).
 */
export async function makeDirectories(directory: string): Promise<void> {
  const above = path.dirname(directory);
  try {
    await mkdir(directory);
  } catch (error) {
    if (hasCode(error, "EEXIST") && (await stat(directory)).isDirectory()) return;
    if (!hasCode(error, "ENOENT") || above === directory) throw error;
    await makeDirectories(above);
    await mkdir(directory).catch((again: unknown) => {
      if (!hasCode(again, "EEXIST")) throw again;
    });
  }
}
