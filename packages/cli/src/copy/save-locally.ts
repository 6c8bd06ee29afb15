/** Writes a file of this machine through a temporary file, so that it is never half written. */
import { randomUUID } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import path from "node:path";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Content } from "./entry.ts";
import { makeDirectories } from "./make-directories.ts";

/** Temporary name in the file's own directory, so that the rename is atomic. */
export function unfinishedName(file: string): string {
  return path.join(path.dirname(file), `.viv-${randomUUID()}.part`);
}

/** Writes a file atomically: an old one stays until the new one is complete. */
export async function saveLocally(file: string, content: Content): Promise<void> {
  if ("file" in content) throw new CliError("both sides are on this machine; copy with cp");
  await makeParent(path.dirname(file));
  const unfinished = unfinishedName(file);
  const handle = await open(unfinished, "wx");
  try {
    for await (const chunk of content) await handle.writeFile(chunk);
    await handle.close();
    await rename(unfinished, file);
  } catch (error) {
    await handle.close().catch(() => {});
    await rm(unfinished, { force: true });
    throw error;
  }
}

async function makeParent(directory: string): Promise<void> {
  try {
    await makeDirectories(directory);
  } catch (cause) {
    const isFile = hasCode(cause, "EEXIST", "ENOTDIR");
    throw isFile ? new CliError(`${directory} is not a directory`, { cause }) : cause;
  }
}
