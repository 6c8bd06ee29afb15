/** Explains why an operation that had started in a session's machine broke off. */
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { type OperationKind, stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";

export interface BreakDeps {
  db: Database;
  signals: SessionSignals;
  /** How long to wait for the end of an operation on the session that is in progress. */
  patienceMs?: number;
}

/** Error texts, by what happened to the session meanwhile. */
export interface BreakTexts {
  paused: string;
  /** Paused and woken, or restored. */
  exchanged: string;
  unknown: string;
}

/**
 * The error of an operation that broke off. Nothing is retried here. If the reason cannot be looked up, the error
 * returned is not retryable. Never throws, so that every stream gets its last event.
 */
export async function explainBreak(
  deps: BreakDeps,
  session: SessionRow,
  texts: BreakTexts,
  cause: unknown,
): Promise<ApiError> {
  try {
    return (
      (await findPauseError(deps, session, texts)) ??
      (await findEndError(deps.db, session)) ??
      new ApiError("internal", texts.unknown, { cause })
    );
  } catch (error) {
    if (error instanceof ApiError) return error;
    const both = new AggregateError([cause, error], "it broke off, and why could not be looked up");
    return new ApiError("internal", texts.unknown, { cause: both });
  }
}

/** Whether a command may still run: one that was paused with its session continues after the wake. */
export function mayStillRun(error: ApiError): boolean {
  return error.code === "conflict";
}

/**
 * An error if a pause or restore interrupted the operation. Waits until a pause or restore in progress has ended; one
 * that takes too long counts as the reason.
 */
export async function findPauseError(
  deps: BreakDeps,
  session: SessionRow,
  texts: BreakTexts,
): Promise<ApiError | undefined> {
  let op: OperationKind | null = null;
  const readWhenFree = async () => {
    const row = await findSessionById(deps.db, session.id);
    op = row?.op ?? null;
    return row && row.state !== "destroyed" && stopsGuest(row.op) ? BUSY : row;
  };
  const late = () => new ApiError("conflict", op === "pause" ? texts.paused : texts.exchanged);
  const now = await whenFree(deps, session.id, readWhenFree, { waitMs: deps.patienceMs, late });
  if (!now || hasSameMachine(now, session) || !["live", "paused"].includes(now.state)) return undefined;
  return new ApiError("conflict", now.state === "paused" ? texts.paused : texts.exchanged);
}

/** An error if the session was destroyed, or has failed, during the request. */
export async function findEndError(db: Database, session: SessionRow): Promise<ApiError | undefined> {
  const now = await findSessionById(db, session.id);
  if (!now || now.state === "destroyed") {
    return new ApiError("session_ended", "the session was destroyed while the request was in flight");
  }
  return now.state === "live" || now.state === "paused" ? undefined : notUsable(now);
}

/** Whether the session still has the machine that it had then. */
export function hasSameMachine(now: SessionRow, then: SessionRow): boolean {
  return now.state === then.state && now.incarnation === then.incarnation;
}
