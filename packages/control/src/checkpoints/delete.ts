import { CHECKPOINT_ID_PATTERN } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { releaseOrigin } from "../sessions/release-origin.ts";
import { checkpointNotFound } from "./get.ts";
import { removeCheckpoint } from "./store.ts";

/** Deletes a checkpoint. Sessions that were started from it, or went back to it, go on. */
export async function deleteCheckpoint(
  deps: { db: Database; nodes: NodeClient; log: Log },
  scope: Scope,
  id: string,
): Promise<void> {
  const isGone = CHECKPOINT_ID_PATTERN.test(id) && (await removeCheckpoint(deps.db, scope, id));
  if (!isGone) throw checkpointNotFound();
  await releaseOrigin(deps, id);
}
