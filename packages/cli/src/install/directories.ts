/** Directories as the operator has them: behind links, or where a filesystem is mounted. */
import { realpathSync, statSync } from "node:fs";
import { lstat, readdir } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";

/** A directory that an uninstall leaves to its operator once it is empty: a link, or where a filesystem is mounted. */
export async function emptyPlace(dir: string): Promise<"link" | "mount" | undefined> {
  const found = await lstat(dir).catch(() => undefined);
  const isMount = async () => (await runHostCommand("mountpoint", ["-q", dir])).code === 0;
  const place = found?.isSymbolicLink() ? "link" : (await isMount()) ? "mount" : undefined;
  if (place === undefined) return undefined;
  // A fresh ext4 has lost+found.
  const names = (await readdir(dir).catch(() => [])).filter((name) => name !== "lost+found");
  return names.length === 0 ? place : undefined;
}

/** Whether two paths are one directory, also through links and mounts of it elsewhere. */
export function isSameDir(one: string, other: string): boolean {
  if (resolveLinks(one) === resolveLinks(other)) return true;
  const [a, b] = [one, other].map((dir) => statSync(dir, { bigint: true, throwIfNoEntry: false }));
  return a !== undefined && b !== undefined && a.dev === b.dev && a.ino === b.ino;
}

/** Whether a path is that of something in a directory, whatever it links to itself. */
export function isInside(file: string, dir: string): boolean {
  const from = resolveLinks(path.dirname(path.resolve(file)));
  const relative = path.relative(resolveLinks(dir), path.join(from, path.basename(file)));
  return relative !== "" && relative.split(path.sep)[0] !== "..";
}

/** The path without links. A directory that does not exist yet has those of its parents resolved. */
function resolveLinks(dir: string): string {
  try {
    return realpathSync(dir);
  } catch {
    const parent = path.dirname(dir);
    return parent === dir ? dir : path.join(resolveLinks(parent), path.basename(dir));
  }
}
