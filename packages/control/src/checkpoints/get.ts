import { CHECKPOINT_ID_PATTERN, CHECKPOINT_NAME_PATTERN } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { type CheckpointRow, findCheckpoint, findCheckpointByName, lockCheckpoint } from "./store.ts";

/** The caller's checkpoint, or the one answer for foreign, deleted and never made. */
export async function getCheckpoint(db: Queries, scope: Scope, id: string): Promise<CheckpointRow> {
  const row = CHECKPOINT_ID_PATTERN.test(id) ? await findCheckpoint(db, scope, id) : undefined;
  if (!row) throw checkpointNotFound();
  return row;
}

/** The same for something that is about to refer to it: until the transaction ends nobody deletes it. */
export async function getCheckpointForUse(
  tx: Queries,
  scope: Scope,
  { id, field }: { id: string; field?: string },
): Promise<CheckpointRow> {
  const row = CHECKPOINT_ID_PATTERN.test(id) ? await lockCheckpoint(tx, scope, id) : undefined;
  if (!row) throw checkpointNotFound(field);
  return row;
}

/** What a restore means: an id, or the name of a checkpoint of this session; an id wins. */
export async function resolveCheckpoint(
  db: Queries,
  { scope, sessionId, idOrName }: { scope: Scope; sessionId: string; idOrName: string },
): Promise<CheckpointRow> {
  // No name has an underscore, so that one text is never both.
  if (CHECKPOINT_ID_PATTERN.test(idOrName)) return await getCheckpoint(db, scope, idOrName);
  const named = CHECKPOINT_NAME_PATTERN.test(idOrName)
    ? await findCheckpointByName(db, sessionId, idOrName)
    : undefined;
  if (named) return named;
  throw new ApiError(
    "not_found",
    "checkpoint_id: no checkpoint of your organisation has this id, and none of this session has this name",
  );
}

export function checkpointNotFound(field?: string): ApiError {
  return new ApiError(
    "not_found",
    `${field ? `${field}: ` : "checkpoint not found: "}no checkpoint of your organisation has this id`,
  );
}
