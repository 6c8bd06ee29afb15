/** Removes the objects of artifacts that are no more. The handler of a background job, and a sweep for what jobs missed. */
import { ARTIFACT_ID_PATTERN } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Owner } from "../secrets/data-key.ts";
import type { ArtifactDeps } from "./deps.ts";
import { prefixOf } from "./pieces.ts";
import { keepOnlyArtifacts } from "./store.ts";

/** Objects that are younger are left alone: their row may be in a database that is being restored. */
const GRACE_MS = 24 * 3_600_000;
/** Objects that are looked up in the database at a time. */
const PAGE = 1000;

/** Input of the job. There is no row any more that it could name. */
export const removalOf = ({ org_id: org, id }: Owner) => `${org}/${id}`;

export async function removeObjects(
  { db, objects }: Pick<ArtifactDeps, "db" | "objects">,
  input: string,
  stopping: AbortSignal,
): Promise<void> {
  const [org_id = "", id = ""] = input.split("/");
  if ((await keepOnlyArtifacts(db, [id])).has(id)) return;
  for await (const { key } of objects.list(prefixOf({ org_id, id }))) {
    stopping.throwIfAborted();
    await objects.delete(key);
    crashPoint("artifact.object_removed");
  }
}

/** Removes every object of an artifact that no row has, and what became no object, once it is old enough. */
export async function removeOrphanObjects(
  { db, objects }: Pick<ArtifactDeps, "db" | "objects">,
  graceMs = GRACE_MS,
): Promise<void> {
  let page: string[] = [];
  const removeUnnamed = async () => {
    const kept = await keepOnlyArtifacts(db, [...new Set(page.map(artifactIn))]);
    for (const key of page) if (!kept.has(artifactIn(key))) await objects.delete(key);
    page = [];
  };
  for await (const { key, modifiedAt } of objects.list("")) {
    const isOurs = key.split("/")[1] === "artifacts" && ARTIFACT_ID_PATTERN.test(artifactIn(key));
    if (!isOurs || Date.now() - modifiedAt.getTime() < graceMs) continue;
    page.push(key);
    if (page.length === PAGE) await removeUnnamed();
  }
  await removeUnnamed();
  await objects.removeUnfinished(graceMs);
}

const artifactIn = (key: string) => key.split("/")[2] ?? "";
