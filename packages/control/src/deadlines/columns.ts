/** Assignments to the deadline columns, for statements that also write other columns of the session. */
import { sql } from "kysely";
import { hasDeadlines, type Move } from "../sessions/state.ts";

const NOW = sql<Date>`service_now()`;

/** The deadline columns after a move. */
export function deadlineColumns(move: Move, wakeAt: Date | null = null) {
  return {
    // Due at once: the sweep then computes the real deadline. Too early is harmless, too late is not.
    due_at: hasDeadlines(move.state) ? NOW : null,
    wake_at: wakeAt,
    wake_retry_at: null,
    wake_drop_at: null,
    ...(move.incarnation !== move.from.incarnation && { last_active_at: NOW }),
    // Activity may carry another clock's time, or be written during this transaction. It must not be after the end.
    ...(move.endReason && { last_active_at: sql<Date>`least(last_active_at, service_now())` }),
  };
}

/** The deadlines are checked `ms` from now. */
export function dueIn(ms: number) {
  return { due_at: sql<Date>`service_now() + make_interval(secs => ${ms / 1000})` };
}

/** As SQL text: the deadlines are checked within `ms`, even if another process has claimed the session for a check. */
export function dueWithin(ms: number) {
  return sql`due_at = least(due_at, service_now() + make_interval(secs => ${ms / 1000})), due_claim = null`;
}

export const DUE_NOW = sql`due_at = service_now()`;
