/** Decides which of a session's deadlines is due, and when the next one will be. Pure. */
import { LIMITS, type SessionEvent, type SessionState } from "@vivarium/contract/api";

/**
 * Added to the idle timeout. Each process writes its activity about a second late, and activity of another process must
 * not be missed.
 */
export const IDLE_GRACE_MS = 2_000;

/** Time for a client to reconnect, for example after a network change, before the detach policy applies. */
export const DETACH_GRACE_MS = 1_000;

/** The end of the dates of RFC 3339. A later deadline never passes. */
const END_OF_DATES = Date.UTC(9999, 11, 31);

/** The columns that determine a session's deadlines. */
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
  on_pty_detach: string;
  /** When the lease of the last terminal, or tunnel, ended or will end; null or absent: never attached. */
  pty_until?: Date | null;
  tunnel_until?: Date | null;
  /** The time until which a guest operation counts as in flight. */
  used_until?: Date | null;
}

export type ClockEvent = Extract<
  SessionEvent,
  | "max_lifetime"
  | "idle_timeout"
  | "continuous_live_limit"
  | "wake_at_reached"
  | "paused_ttl_exceeded"
  | "last_pty_detached_pause"
  | "last_pty_detached_destroy"
>;

interface Deadline {
  event: ClockEvent;
  at: number;
}

/**
 * The event of the deadline that passed first. `max_lifetime` has priority over all others, and the detach events come
 * after all others.
 */
export function dueEvent(row: ClockRow, now: Date): ClockEvent | null {
  const due = deadlinesOf(row).filter(({ at }) => at <= now.getTime());
  if (due.some(({ event }) => event === "max_lifetime")) return "max_lifetime";
  const before = due.filter(({ event }) => !isDetach(event));
  return (earliest(before) ?? earliest(due))?.event ?? null;
}

function isDetach(event: ClockEvent): boolean {
  return event === "last_pty_detached_pause" || event === "last_pty_detached_destroy";
}

/** The earliest deadline; null without one. */
export function nextDueAt(row: ClockRow): Date | null {
  const next = earliest(deadlinesOf(row));
  return next ? new Date(next.at) : null;
}

/** Ordered by priority, which decides between deadlines at the same instant. */
function deadlinesOf(row: ClockRow): Deadline[] {
  switch (row.state) {
    case "live":
      return [
        ...after("max_lifetime", row.created_at, row.max_lifetime_ms),
        ...after("idle_timeout", lastUsed(row), row.idle_timeout_ms, IDLE_GRACE_MS),
        ...after("continuous_live_limit", row.live_since, LIMITS.continuousLiveMs),
        ...lastTerminalDetached(row),
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

/** An attached client counts as activity even if it sends nothing. */
function lastUsed({ last_active_at, pty_until, tunnel_until }: ClockRow): Date {
  return latest(last_active_at, pty_until, tunnel_until);
}

/** The deadline of the detach policy, from the end of the last terminal, tunnel, command or transfer. */
function lastTerminalDetached({
  on_pty_detach: policy,
  pty_until,
  tunnel_until,
  used_until,
}: ClockRow): Deadline[] {
  if (!pty_until || policy === "keep_live") return [];
  const event = policy === "destroy" ? "last_pty_detached_destroy" : "last_pty_detached_pause";
  return after(event, latest(pty_until, tunnel_until, used_until), DETACH_GRACE_MS);
}

function latest(first: Date, ...others: (Date | null | undefined)[]): Date {
  return others.reduce<Date>((last, next) => (next && next > last ? next : last), first);
}

/** A negative TTL means no limit. */
function pausedTtl({ paused_at, paused_ttl_ms }: ClockRow): Deadline[] {
  return paused_ttl_ms < 0 ? [] : after("paused_ttl_exceeded", paused_at, paused_ttl_ms);
}

function after(event: ClockEvent, start: Date | null, ms: number | null, graceMs = 0): Deadline[] {
  if (start === null || ms === null) return [];
  const at = start.getTime() + ms + graceMs;
  return at > END_OF_DATES ? [] : [{ event, at }];
}

function earliest(deadlines: Deadline[]): Deadline | undefined {
  return deadlines.reduce<Deadline | undefined>(
    (first, next) => (first === undefined || next.at < first.at ? next : first),
    undefined,
  );
}
