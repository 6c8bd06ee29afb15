/**
 * The folder of a snapshot before and after it is one. What is half made or half removed must be known by its looks: a
 * folder that merely lacks its manifest was published once, and what is left of it is not thrown away.
 */
import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "../host/durable-file.ts";
import { manifestPath } from "./manifest.ts";

/** The name under which `publishManifest` writes the manifest: it is there, empty, from the first instant on. */
const unfinishedManifest = (dir: string) => `${manifestPath(dir)}.tmp`;
const REMOVED = ".removed";

/** An empty folder that is nothing until its manifest is published. */
export async function makeUnpublished(dir: string): Promise<void> {
  await removeFolder(dir);
  await mkdir(dir, { recursive: true, mode: 0o711 });
  const mark = await open(unfinishedManifest(dir), "w", 0o444);
  await mark.close();
}

/** From the rename on there is no such snapshot, whatever is left of its files. */
export async function removeFolder(dir: string): Promise<void> {
  const removed = `${dir}${REMOVED}`;
  await rm(removed, { recursive: true, force: true });
  try {
    await rename(dir, removed);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
    throw error;
  }
  await syncPath(path.dirname(dir));
  crashPoint("remove.renamed");
  await rm(removed, { recursive: true, force: true });
}

/** `unfinished`: no snapshot yet. `published`: it is one, or was one before its files were lost. */
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

/** What a daemon that died left of folders that it was making or removing. Returns their names. */
export async function removeRemains(parent: string): Promise<string[]> {
  const remains: string[] = [];
  for (const name of await readdir(parent)) {
    const dir = path.join(parent, name);
    const isRemoved = name.endsWith(REMOVED);
    if (!isRemoved && (await lookOf(dir)) !== "unfinished") continue;
    remains.push(name);
    if (isRemoved) await rm(dir, { recursive: true, force: true });
    else await removeFolder(dir);
  }
  return remains;
}
