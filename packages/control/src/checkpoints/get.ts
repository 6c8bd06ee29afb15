/** Finds a caller's checkpoint, or throws the error that the caller gets. */
import { CHECKPOINT_ID_PATTERN, CHECKPOINT_NAME_PATTERN } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { type CheckpointRow, findCheckpoint, findCheckpointByName } from "./store.ts";

/**
 * The caller's checkpoint. A foreign, deleted or unknown id is the same 404. With `lock`, it cannot be deleted before
 * the transaction ends.
 */
export async function getCheckpoint(
  db: Queries,
  scope: Scope,
  id: string,
  { field, lock }: { field?: string; lock?: boolean } = {},
): Promise<CheckpointRow> {
  const row = CHECKPOINT_ID_PATTERN.test(id) ? await findCheckpoint(db, scope, id, lock) : undefined;
  if (!row) throw checkpointNotFound(field);
  return row;
}

/** Finds a checkpoint by id, or by its name within the session. */
export async function resolveCheckpoint(
  db: Queries,
  { scope, sessionId, idOrName }: { scope: Scope; sessionId: string; idOrName: string },
): Promise<CheckpointRow> {
  // An id has an underscore and a name cannot have one, so no text is both.
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
