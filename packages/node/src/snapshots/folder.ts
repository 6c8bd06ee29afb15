/**
 * Makes and removes the folder of a snapshot. An unfinished or half removed one is recognised by marks of its own: a
 * folder that merely lacks its manifest was published once, so its remains are kept.
 */
import { mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { removeHalfRemoved, removeInSteps } from "../disks/remove-folder.ts";
import { manifestPath } from "./manifest.ts";

/** The manifest's name before it is published. The file exists, empty, as long as the snapshot is unfinished. */
const unfinishedManifest = (dir: string) => `${manifestPath(dir)}.tmp`;

/** Makes an empty, unfinished folder, which becomes a snapshot when its manifest is published. */
export async function makeUnpublished(dir: string): Promise<void> {
  await removeFolder(dir);
  await mkdir(dir, { recursive: true, mode: 0o711 });
  await writeFile(unfinishedManifest(dir), "", { mode: 0o444 });
}

/** Removes a snapshot. */
export async function removeFolder(dir: string): Promise<void> {
  await removeInSteps(dir, () => crashPoint("remove.renamed"));
}

/** State of a snapshot's folder. `unfinished`: not a snapshot yet. `published`: a snapshot, or one that lost files. */
export async function lookOf(dir: string): Promise<"none" | "unfinished" | "published"> {
  const names = await readdir(dir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (!names) return "none";
  if (names.includes(path.basename(manifestPath(dir)))) return "published";
  const isUnfinished = names.length === 0 || names.includes(path.basename(unfinishedManifest(dir)));
  return isUnfinished ? "unfinished" : "published";
}

/** Names of the folders in a folder. */
export async function foldersIn(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

/** As `foldersIn`, without folders that are being made or removed, whose names begin with a dot. */
export const visibleFoldersIn = async (dir: string) =>
  (await foldersIn(dir)).filter((name) => !name.startsWith("."));

/** Removes folders that a crashed daemon left unfinished or half removed. Returns their names. */
export async function removeRemains(parent: string): Promise<string[]> {
  const remains = await removeHalfRemoved(parent);
  for (const name of await readdir(parent)) {
    const dir = path.join(parent, name);
    if ((await lookOf(dir)) !== "unfinished") continue;
    remains.push(name);
    await removeFolder(dir);
  }
  return remains;
}
