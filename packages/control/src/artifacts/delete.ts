import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { ArtifactDeps } from "./deps.ts";
import { getArtifact } from "./get.ts";
import { removalOf } from "./remove-objects.ts";
import { removeArtifact } from "./store.ts";

/** Deletes record and files. A capture in progress ends, and leaves nothing. */
export async function deleteArtifact(
  deps: Pick<ArtifactDeps, "db" | "auditKey" | "jobs">,
  scope: Scope,
  { id, by }: { id: string; by: Caller },
): Promise<void> {
  const gone = await deps.db.transaction().execute(async (tx) => {
    const row = await getArtifact(tx, scope, id, { lock: true });
    await removeArtifact(tx, id);
    await appendEntry(deps, tx, { by, action: "artifact.delete", target: id, sessionId: row.session_id });
    return row;
  });
  crashPoint("artifact.deleted");
  await deps.jobs.add("artifact_removal", removalOf(gone));
}
