import type { Database } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import { hasEnded } from "../sessions/state.ts";
import { findSessionById } from "../sessions/store.ts";
import type { Operation } from "./operations.ts";

/**
 * The owner of an operation that was cancelled or could not be committed.
 *   ours     still in the row under this id: this process shuts down, or the database is away
 *   another  another process took it over, committed it or rolled it back; the row has the outcome
 *   ended    the session has ended, so whatever the operation made is an orphan
 */
export async function ownershipOf(db: Database, op: Operation): Promise<"ours" | "another" | "ended"> {
  const session = await untilStored(() => findSessionById(db, op.session.id));
  if (!session || hasEnded(session.state)) return "ended";
  return session.op_id === op.id ? "ours" : "another";
}

export function endedDuringRequest(): ApiError {
  return new ApiError("session_ended", "the session ended while the request was in flight");
}
