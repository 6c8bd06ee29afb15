/** Which of a session's deadlines is due, and when to look next. Pure: rows and instants in, decisions out. */
import { LIMITS, type SessionEvent, type SessionState } from "@vivarium/contract/api";

/**
 * Activity is written down about every second, also by other processes: only after this much more silence is a
 * session idle.
 */
export const IDLE_GRACE_MS = 2_000;

/** What the deadlines of a session follow from. */
export interface ClockRow {
  state: SessionState;
  created_at: Date;
  last_active_at: Date;
  live_since: Date | null;
  paused_at: Date | null;
  wake_at: Date | null;
  wake_retry_at: Date | null;
  max_lifetime_ms: number | null;
  idle_timeout_ms: number | null;
  paused_ttl_ms: number;
}

export type ClockEvent = Extract<
  SessionEvent,
  "max_lifetime" | "idle_timeout" | "continuous_live_limit" | "wake_at_reached" | "paused_ttl_exceeded"
>;

interface Deadline {
  event: ClockEvent;
  at: number;
}

/** The event of the deadline that passed first; the end of the lifetime comes before any other. */
export function dueEvent(row: ClockRow, now: Date): ClockEvent | null {
  const due = deadlinesOf(row).filter(({ at }) => at <= now.getTime());
  if (due.some(({ event }) => event === "max_lifetime")) return "max_lifetime";
  return earliest(due)?.event ?? null;
}

/** When the next deadline can pass; null when none can. */
export function nextDueAt(row: ClockRow): Date | null {
  const next = earliest(deadlinesOf(row));
  return next ? new Date(next.at) : null;
}

/** In the interface's order of priority, which decides between deadlines of the same instant. */
function deadlinesOf(row: ClockRow): Deadline[] {
  switch (row.state) {
    case "live":
      return [
        ...after("max_lifetime", row.created_at, row.max_lifetime_ms),
        ...after("idle_timeout", row.last_active_at, row.idle_timeout_ms, IDLE_GRACE_MS),
        ...after("continuous_live_limit", row.live_since, LIMITS.continuousLiveMs),
      ];
    case "paused":
      return [
        ...after("max_lifetime", row.created_at, row.max_lifetime_ms),
        ...pausedTtl(row),
        ...after("wake_at_reached", row.wake_retry_at ?? row.wake_at, 0),
      ];
    case "lifetime_expired":
      return pausedTtl(row);
    default:
      return [];
  }
}

/** A negative time to live never ends. */
function pausedTtl({ paused_at, paused_ttl_ms }: ClockRow): Deadline[] {
  return paused_ttl_ms < 0 ? [] : after("paused_ttl_exceeded", paused_at, paused_ttl_ms);
}

function after(event: ClockEvent, start: Date | null, ms: number | null, graceMs = 0): Deadline[] {
  return start === null || ms === null ? [] : [{ event, at: start.getTime() + ms + graceMs }];
}

function earliest(deadlines: Deadline[]): Deadline | undefined {
  return deadlines.reduce<Deadline | undefined>(
    (first, next) => (first === undefined || next.at < first.at ? next : first),
    undefined,
  );
}
