/** Baselines of builds, which are found by the id of their build and not offered to others. */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { BuildId } from "@vivarium/contract/node";
import { type Baseline, baselineKey } from "./find-baselines.ts";
import { assertFits } from "./fit.ts";
import { visibleFoldersIn } from "./folder.ts";
import { readManifest } from "./manifest.ts";

/** Folder of the builds, each of which is the folder of a template once it is ready. */
export const buildsDir = (dataDir: string) => path.join(dataDir, "pool/b");

/** The keys of all builds, `<build id>/<size>`, also of those that are not ready. */
export async function builtKeys(dataDir: string): Promise<string[]> {
  const parent = buildsDir(dataDir);
  const keysOf = async (id: string) =>
    (await visibleFoldersIn(path.join(parent, id))).map((size) => baselineKey(id, size));
  return (await Promise.all((await visibleFoldersIn(parent)).map(keysOf))).flat();
}

/** The baseline of a build. The record of a build is written last, once it is ready. */
export async function findBuilt(dataDir: string, key: string): Promise<Baseline | undefined> {
  const [id = "", size = ""] = key.split("/");
  if (!BuildId.safeParse(id).success) return undefined;
  const dir = path.join(buildsDir(dataDir), id, size);
  const manifest = await readManifest(dir).catch(() => undefined);
  if (!manifest || !(await isReady(path.dirname(dir)))) return undefined;
  assertFits(manifest);
  return { dir, manifest, isCurrent: false, isVerified: false, origin: {} };
}

/** Whether the record of a build (`builds/record.ts`) says so. */
async function isReady(dir: string): Promise<boolean> {
  const text = await readFile(path.join(dir, "build.json"), "utf8").catch(() => "{}");
  return JSON.parse(text).status?.state === "ready";
}
