/** Finds a caller's artifacts. An expired, deleted, foreign or unknown id is the same 404. */
import { ARTIFACT_ID_PATTERN, SESSION_ID_PATTERN } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError, SessionNotFound } from "../errors/api-error.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { findAnySession } from "../sessions/store.ts";
import { type ArtifactRow, findArtifact, listOfSession } from "./store.ts";

export async function getArtifact(
  db: Queries,
  scope: Scope,
  id: string,
  { sessionId, lock }: { sessionId?: string; lock?: boolean } = {},
): Promise<ArtifactRow> {
  const row = ARTIFACT_ID_PATTERN.test(id) ? await findArtifact(db, scope, id, lock) : undefined;
  if (!row || (sessionId !== undefined && row.session_id !== sessionId)) throw artifactNotFound();
  return row;
}

/** Newest first, also after the end of the session, and after its history is gone. */
export async function listArtifacts(db: Queries, scope: Scope, sessionId: string): Promise<ArtifactRow[]> {
  if (!SESSION_ID_PATTERN.test(sessionId)) throw new SessionNotFound();
  const rows = await listOfSession(db, scope, sessionId);
  const session = await findAnySession(db, scope, sessionId);
  if (session?.state === "failed") throw notUsable(session);
  if (!session && rows.length === 0) throw new SessionNotFound();
  return rows;
}

function artifactNotFound(): ApiError {
  return new ApiError(
    "not_found",
    "artifact not found: no artifact of your organisation has this id (it may have expired or been deleted)",
  );
}
