import { SESSION_STATES, type SessionState } from "@vivarium/contract/api";
import { describe, expect, test } from "vitest";
import { decide } from "../sessions/state.ts";
import {
  type ClockEvent,
  type ClockRow,
  DETACH_GRACE_MS,
  dueEvent,
  IDLE_GRACE_MS,
  nextDueAt,
} from "./clocks.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const T0 = Date.parse("2027-03-01T00:00:00Z");
const at = (ms: number) => new Date(T0 + ms);

function row(state: SessionState, more: Partial<ClockRow> = {}): ClockRow {
  return {
    state,
    created_at: at(0),
    last_active_at: at(0),
    live_since: at(0),
    paused_at: state === "live" ? null : at(0),
    wake_at: null,
    wake_retry_at: null,
    max_lifetime_ms: null,
    idle_timeout_ms: null,
    paused_ttl_ms: 30 * DAY,
    on_pty_detach: "pause",
    ...more,
  };
}

/** Single deadlines: not due just before their instant, due from then on, and the next check is at that instant. */
const ALONE: [what: string, one: ClockRow, event: ClockEvent, dueMs: number][] = [
  ["live: max_lifetime_ms", row("live", { max_lifetime_ms: HOUR }), "max_lifetime", HOUR],
  ["paused: max_lifetime_ms", row("paused", { max_lifetime_ms: HOUR }), "max_lifetime", HOUR],
  ["live: idle_timeout_ms", row("live", { idle_timeout_ms: MINUTE }), "idle_timeout", MINUTE + IDLE_GRACE_MS],
  [
    "live: idle_timeout_ms counts from the last activity",
    row("live", { idle_timeout_ms: MINUTE, last_active_at: at(HOUR) }),
    "idle_timeout",
    HOUR + MINUTE + IDLE_GRACE_MS,
  ],
  ["live: 24 hours", row("live"), "continuous_live_limit", DAY],
  [
    "live: 24 hours count from the last wake",
    row("live", { live_since: at(5 * HOUR) }),
    "continuous_live_limit",
    DAY + 5 * HOUR,
  ],
  ["paused: wake_at", row("paused", { wake_at: at(HOUR) }), "wake_at_reached", HOUR],
  [
    "paused: a refused wake is tried later",
    row("paused", { wake_at: at(HOUR), wake_retry_at: at(HOUR + 5000) }),
    "wake_at_reached",
    HOUR + 5000,
  ],
  ["paused: paused_ttl_ms", row("paused", { paused_ttl_ms: HOUR }), "paused_ttl_exceeded", HOUR],
  ["paused: 30 days", row("paused"), "paused_ttl_exceeded", 30 * DAY],
  [
    "paused: paused_ttl_ms counts from the pause",
    row("paused", { paused_ttl_ms: HOUR, paused_at: at(DAY) }),
    "paused_ttl_exceeded",
    DAY + HOUR,
  ],
  [
    "lifetime_expired: paused_ttl_ms bounds what is stored",
    row("lifetime_expired", { paused_ttl_ms: HOUR, max_lifetime_ms: MINUTE }),
    "paused_ttl_exceeded",
    HOUR,
  ],
  [
    "live: the last terminal has detached",
    row("live", { pty_until: at(HOUR) }),
    "last_pty_detached_pause",
    HOUR + DETACH_GRACE_MS,
  ],
  [
    "live: the last terminal has detached, and the policy is destroy",
    row("live", { pty_until: at(HOUR), on_pty_detach: "destroy" }),
    "last_pty_detached_destroy",
    HOUR + DETACH_GRACE_MS,
  ],
  [
    "live: a tunnel outlasts the last terminal",
    row("live", { pty_until: at(HOUR), tunnel_until: at(2 * HOUR) }),
    "last_pty_detached_pause",
    2 * HOUR + DETACH_GRACE_MS,
  ],
  [
    "live: a command outlasts the last terminal",
    row("live", { pty_until: at(HOUR), used_until: at(3 * HOUR) }),
    "last_pty_detached_pause",
    3 * HOUR + DETACH_GRACE_MS,
  ],
  [
    "live: idle_timeout_ms counts from the last client's detach",
    row("live", { idle_timeout_ms: MINUTE, tunnel_until: at(HOUR) }),
    "idle_timeout",
    HOUR + MINUTE + IDLE_GRACE_MS,
  ],
];

describe.each(ALONE)("%s", (_what, one, event, dueMs) => {
  test("is due from its instant on", () => {
    expect(dueEvent(one, at(dueMs - 1))).toBeNull();
    expect(dueEvent(one, at(dueMs))).toBe(event);
    expect(dueEvent(one, at(dueMs + 365 * DAY))).not.toBeNull();
  });

  test("is the next check", () => {
    expect(nextDueAt(one)).toEqual(at(dueMs));
  });

  test("is an event in the transition table", () => {
    expect(decide({ state: one.state, incarnation: 1 }, event)).toBeDefined();
  });
});

test("a TTL that ends after the last RFC 3339 date never ends", () => {
  for (const paused_ttl_ms of [Number.MAX_SAFE_INTEGER, 8.64e15]) {
    const one = row("paused", { paused_ttl_ms });
    expect([nextDueAt(one), dueEvent(one, at(365 * DAY))]).toEqual([null, null]);
  }
});

describe("several deadlines", () => {
  test("the end of the lifetime comes before deadlines that passed earlier", () => {
    const live = row("live", { max_lifetime_ms: HOUR, idle_timeout_ms: MINUTE });
    expect(dueEvent(live, at(HOUR - 1))).toBe("idle_timeout");
    expect(dueEvent(live, at(HOUR))).toBe("max_lifetime");
    const paused = row("paused", { max_lifetime_ms: HOUR, paused_ttl_ms: MINUTE, wake_at: at(1) });
    expect(dueEvent(paused, at(HOUR))).toBe("max_lifetime");
  });

  test("otherwise the one that passed first comes first", () => {
    const wakesFirst = row("paused", { wake_at: at(MINUTE), paused_ttl_ms: HOUR });
    expect(dueEvent(wakesFirst, at(DAY))).toBe("wake_at_reached");
    const endsFirst = row("paused", { wake_at: at(HOUR), paused_ttl_ms: MINUTE });
    expect(dueEvent(endsFirst, at(DAY))).toBe("paused_ttl_exceeded");
    const idleFirst = row("live", { idle_timeout_ms: HOUR });
    expect(dueEvent(idleFirst, at(2 * DAY))).toBe("idle_timeout");
    const busy = row("live", { idle_timeout_ms: HOUR, last_active_at: at(DAY - MINUTE) });
    expect(dueEvent(busy, at(2 * DAY))).toBe("continuous_live_limit");
  });

  test("at the same instant are ordered by priority", () => {
    const paused = row("paused", { wake_at: at(HOUR), paused_ttl_ms: HOUR });
    expect(dueEvent(paused, at(HOUR))).toBe("paused_ttl_exceeded");
    const live = row("live", { idle_timeout_ms: DAY - IDLE_GRACE_MS });
    expect(dueEvent(live, at(DAY))).toBe("idle_timeout");
  });

  test("paused_ttl_ms can end while a refused wake is retried", () => {
    const one = row("paused", { wake_at: at(1), wake_retry_at: at(HOUR), paused_ttl_ms: MINUTE });
    expect(dueEvent(one, at(DAY))).toBe("paused_ttl_exceeded");
  });

  test("the next check is at the first of them", () => {
    expect(nextDueAt(row("live", { max_lifetime_ms: HOUR, idle_timeout_ms: 30 * MINUTE }))).toEqual(
      at(30 * MINUTE + IDLE_GRACE_MS),
    );
    expect(nextDueAt(row("paused", { max_lifetime_ms: HOUR, wake_at: at(MINUTE) }))).toEqual(at(MINUTE));
  });
});

test("a negative paused_ttl_ms never ends a session", () => {
  for (const state of ["paused", "lifetime_expired"] as const) {
    const one = row(state, { paused_ttl_ms: -1 });
    expect([dueEvent(one, at(1000 * DAY)), nextDueAt(one)]).toEqual([null, null]);
  }
});

test("sessions without a machine or a saved state have no deadlines", () => {
  const all = { max_lifetime_ms: 1, idle_timeout_ms: 1, paused_ttl_ms: 1, wake_at: at(1) };
  const without = SESSION_STATES.filter((state) => !["live", "paused", "lifetime_expired"].includes(state));
  for (const state of without) {
    expect([dueEvent(row(state, all), at(DAY)), nextDueAt(row(state, all))], state).toEqual([null, null]);
  }
});

test("the next check is never after a deadline", () => {
  const values = [null, 1, MINUTE, HOUR, DAY];
  for (const state of ["live", "paused", "lifetime_expired"] as const) {
    for (const max_lifetime_ms of values) {
      for (const idle_timeout_ms of values) {
        for (const wake of values) {
          const wake_at = wake === null ? null : at(wake);
          const one = row(state, { max_lifetime_ms, idle_timeout_ms, wake_at, paused_ttl_ms: HOUR });
          const next = nextDueAt(one);
          if (next === null) throw new Error(`${state} never wants a look`);
          expect(dueEvent(one, new Date(next.getTime() - 1))).toBeNull();
          expect(dueEvent(one, next)).not.toBeNull();
        }
      }
    }
  }
});

describe("on_pty_detach", () => {
  test("keep_live has no deadline", () => {
    const kept = row("live", { pty_until: at(0), on_pty_detach: "keep_live" });
    expect(dueEvent(kept, at(HOUR))).toBeNull();
  });

  test("a tunnel does not count as a terminal", () => {
    expect(dueEvent(row("live", { tunnel_until: at(0) }), at(HOUR))).toBeNull();
  });

  test("comes after every other deadline, even one that passed later", () => {
    const left = { pty_until: at(0), on_pty_detach: "destroy" };
    expect(dueEvent(row("live", { ...left, idle_timeout_ms: MINUTE }), at(HOUR))).toBe("idle_timeout");
    expect(dueEvent(row("live", { ...left, max_lifetime_ms: MINUTE }), at(HOUR))).toBe("max_lifetime");
    expect(dueEvent(row("live", left), at(2 * DAY))).toBe("continuous_live_limit");
  });
});
