/** This machine as one side of a copy. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { chmod, lstat, rename, rm, symlink, utimes } from "node:fs/promises";
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Place, ToFinish } from "./entry.ts";
import { inParallel } from "./in-parallel.ts";
import { makeDirectories } from "./make-directories.ts";
import { saveLocally, unfinishedName } from "./save-locally.ts";
import { scanLocal } from "./scan-local.ts";

const HASHES_AT_ONCE = 4;

export function localPlace(signal: AbortSignal): Place {
  return {
    nameOf: (file) => file,
    scan: scanLocal,
    hash: (paths) => hashLocal(paths, signal),
    read: (file) => ({ file }),
    put: ({ path: file, content }) => saveLocally(file, content),
    makeDirectories: async (paths) => {
      for (const each of paths) await makeDirectory(each);
    },
    finish: finishLocal,
  };
}

async function hashLocal(paths: readonly string[], signal: AbortSignal): Promise<Map<string, string>> {
  const hashes = new Map<string, string>();
  await inParallel(paths, HASHES_AT_ONCE, async (file) => {
    const hash = createHash("sha256");
    try {
      for await (const chunk of createReadStream(file, { signal })) hash.update(chunk);
      hashes.set(file, hash.digest("hex"));
    } catch {
      // A file without a hash counts as different: the copy then reports the read error.
      signal.throwIfAborted();
    }
  });
  return hashes;
}

/**
 * Makes a directory, and refuses a link at its path. Hazard: an earlier copy may have made that link as the session
 * asked, and it would lead the files of this copy to any path that the session chose.
 */
async function makeDirectory(directory: string): Promise<void> {
  const found = await lstat(directory).catch(() => undefined);
  if (found?.isDirectory()) return;
  if (found !== undefined)
    throw new CliError(`${directory} is to be a directory, and is something else here; remove it first`);
  await makeDirectories(directory);
}

/** Makes links, then sets modes, within the umask, and times; returns failures. */
async function finishLocal(what: readonly ToFinish[]): Promise<string[]> {
  const complaints: string[] = [];
  // Deepest paths first: a directory that loses its permissions hides the paths below it.
  for (const { path: file, entry } of what.toReversed()) {
    try {
      if (entry.kind === "link") await makeLink(file, entry.target ?? "");
      else {
        await chmod(file, entry.mode & ~process.umask());
        if (entry.kind === "file") await utimes(file, new Date(), new Date(entry.modifiedAt * 1000));
      }
    } catch (error) {
      complaints.push(messageOf(error));
    }
  }
  return complaints;
}

/** Makes a link, or replaces a link or file by it atomically. */
async function makeLink(file: string, target: string): Promise<void> {
  const unfinished = unfinishedName(file);
  await symlink(target, unfinished);
  try {
    await rename(unfinished, file);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
