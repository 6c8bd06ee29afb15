import { CHECKPOINT_ID_PATTERN } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { deleteArchiveOf } from "../archive-records/remove.ts";
import { appendEntry } from "../audit/append.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { releaseOrigin } from "../moves/release-origin.ts";
import { checkpointNotFound } from "./get.ts";
import { removeCheckpoint } from "./store.ts";

/** Deletes a checkpoint. Sessions that were started from it, or restored to it, are not affected. */
export async function deleteCheckpoint(
  deps: Pick<MoveDeps, "db" | "nodes" | "auditKey" | "log">,
  scope: Scope,
  { id, by }: { id: string; by: Caller },
): Promise<void> {
  if (!CHECKPOINT_ID_PATTERN.test(id)) throw checkpointNotFound();
  await deps.db.transaction().execute(async (tx) => {
    const gone = await removeCheckpoint(tx, scope, id);
    if (!gone) throw checkpointNotFound();
    await deleteArchiveOf(tx, id);
    const { size_bytes } = gone;
    const session = { ...gone, id: gone.session_id };
    await appendEvent(tx, eventOf(session, "checkpoint.deleted", { checkpoint_id: id, size_bytes }));
    await appendEntry(deps, tx, { by, action: "checkpoint.delete", target: id, sessionId: session.id });
  });
  crashPoint("checkpoint_delete.commit");
  await releaseOrigin(deps, id);
}
