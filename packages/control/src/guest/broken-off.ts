/** Explains why something that had begun in a session's machine did not come to its end. */
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { type OperationKind, stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";

export interface BrokenOffDeps {
  db: Database;
  signals: SessionSignals;
  /** How long an operation that is under way is waited for. */
  patienceMs?: number;
}

/** What a caller is told, by what became of the session meanwhile. */
export interface BrokenOffWords {
  paused: string;
  /** Paused and woken, or restored. */
  exchanged: string;
  unknown: string;
}

/**
 * It is never begun again by itself: whatever keeps the reason from being found, the store that is away or an operation
 * that does not end, the answer asks nobody to try again. Does not throw, so that every stream has its end.
 */
export async function brokenOff(
  deps: BrokenOffDeps,
  session: SessionRow,
  words: BrokenOffWords,
  cause: unknown,
): Promise<ApiError> {
  try {
    return (
      (await pausedMeanwhile(deps, session, words)) ??
      (await endedMeanwhile(deps.db, session)) ??
      new ApiError("internal", words.unknown, { cause })
    );
  } catch (error) {
    if (error instanceof ApiError) return error;
    const both = new AggregateError([cause, error], "it broke off, and why could not be looked up");
    return new ApiError("internal", words.unknown, { cause: both });
  }
}

/** What was paused with its session is not over. */
export function goesOn(error: ApiError): boolean {
  return error.code === "conflict";
}

/**
 * A pause, or a restore, that is under way explains the break only once it is done. One that takes longer than anybody
 * waits is the reason all the same.
 */
export async function pausedMeanwhile(
  deps: BrokenOffDeps,
  session: SessionRow,
  words: BrokenOffWords,
): Promise<ApiError | undefined> {
  let op: OperationKind | null = null;
  const look = async () => {
    const row = await findSessionById(deps.db, session.id);
    op = row?.op ?? null;
    return row && row.state !== "destroyed" && stopsGuest(row.op) ? BUSY : row;
  };
  const late = () => new ApiError("conflict", op === "pause" ? words.paused : words.exchanged);
  const now = await whenFree(deps, session.id, look, { waitMs: deps.patienceMs, late });
  if (!now || isSameStretch(now, session) || !["live", "paused"].includes(now.state)) return undefined;
  return new ApiError("conflict", now.state === "paused" ? words.paused : words.exchanged);
}

/** A session that was destroyed, or failed, under a request explains the request's failure. */
export async function endedMeanwhile(db: Database, session: SessionRow): Promise<ApiError | undefined> {
  const now = await findSessionById(db, session.id);
  if (!now || now.state === "destroyed") {
    return new ApiError("session_ended", "the session was destroyed while the request was in flight");
  }
  return now.state === "live" || now.state === "paused" ? undefined : notUsable(now);
}

/** The machine that the session had then is the one it has now. */
export function isSameStretch(now: SessionRow, then: SessionRow): boolean {
  return now.state === then.state && now.incarnation === then.incarnation;
}
