/** Assignments to the columns of deadlines, for statements that write other columns of the session as well. */
import { sql } from "kysely";
import { hasClocks, type Move } from "../sessions/state.ts";

const NOW = sql<Date>`service_now()`;

/** What a move of a session makes of its deadlines. */
export function deadlineColumns(move: Move, wakeAt: Date | null = null) {
  return {
    // The sweep finds out what is due when; better too early than too late.
    due_at: hasClocks(move.state) ? NOW : null,
    wake_at: wakeAt,
    wake_retry_at: null,
    wake_drop_at: null,
    ...(move.incarnation !== move.from.incarnation && { last_active_at: NOW }),
    // Activity is written by another clock, and perhaps while this transaction was under way.
    ...(move.endReason && { last_active_at: sql<Date>`least(last_active_at, service_now())` }),
  };
}

/** The clocks are looked at `ms` from now. */
export function dueIn(ms: number) {
  return { due_at: sql<Date>`service_now() + make_interval(secs => ${ms / 1000})` };
}

/** The same in SQL text: in `ms` at the latest, whoever is looking at the session at the moment. */
export function dueWithin(ms: number) {
  return sql`due_at = least(due_at, service_now() + make_interval(secs => ${ms / 1000})), due_claim = null`;
}

export const DUE_NOW = sql`due_at = service_now()`;
