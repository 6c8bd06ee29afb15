import type { Database } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import type { Operation } from "./operations.ts";

/**
 * What became of an operation that could not be committed, or was called off.
 *   ours     it is still in the row under our name: shutdown, or a store that is away
 *   another  somebody else took it over, committed it or took it back; the row tells
 *   ended    the session has ended under it: what it made is nobody's
 */
export type Aftermath = { is: "ours" | "another"; session: SessionRow } | { is: "ended" };

export async function aftermathOf({ db }: { db: Database }, op: Operation): Promise<Aftermath> {
  const session = await untilStored(() => findSessionById(db, op.session.id));
  if (!session || session.state === "destroyed" || session.state === "failed") return { is: "ended" };
  return { is: session.op_id === op.id ? "ours" : "another", session };
}

export function endedMeanwhile(): ApiError {
  return new ApiError("session_ended", "the session ended while the request was in flight");
}
