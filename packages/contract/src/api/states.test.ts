import { describe, expect, test } from "vitest";
import {
  END_REASONS,
  findTransition,
  LIST_STATES,
  SESSION_EVENTS,
  SESSION_STATES,
  type SessionEvent,
  type SessionState,
  TRANSITIONS,
  WIRE_STATES,
} from "./states.ts";

/**
 * The state table of docs/spec/sessions.md, row by row: from | what happens (as our event) | to | end_reason. `*`
 * stands for every state but `destroyed`; `-` for no session yet.
 */
const INTERFACE_ROWS = `
-                | create                      | creating         |
creating         | provisioned                 | live             |
creating         | provision_failed            | failed           |
live             | pause                       | paused           |
live             | last_pty_detached_pause     | paused           |
live             | last_pty_detached_destroy   | destroyed        | on_detach_destroy
live             | last_pty_detached_keep_live | live             |
live             | idle_timeout                | paused           |
live             | continuous_live_limit       | paused           |
live             | max_lifetime                | lifetime_expired |
paused           | max_lifetime                | lifetime_expired |
live             | max_lifetime_pause_failed   | destroyed        | max_lifetime
paused           | resume                      | live             |
paused           | operation_wake              | live             |
paused           | tunnel_attach               | live             |
paused           | wake_at_reached             | live             |
live             | wake_at_reached             | live             |
paused           | paused_ttl_exceeded         | destroyed        | paused_ttl
lifetime_expired | paused_ttl_exceeded         | destroyed        | paused_ttl
*                | destroy                     | destroyed        | client_destroy
*                | first_exec_completed        | destroyed        | client_destroy
node_lost        | recover                     | live             |
live             | restore                     | live             |
`;

/** Moves beyond that table. */
const DECIDED_ROWS = `
live             | host_shutdown               | paused           |
paused           | pause                       | paused           |
live             | resume                      | live             |
paused           | restore                     | live             |
live             | node_declared_lost          | node_lost        |
paused           | node_declared_lost          | node_lost        |
live             | machine_lost                | failed           |
creating         | machine_found               | live             |
live             | machine_found               | live             |
paused           | machine_found               | live             |
creating         | saved_state_found           | paused           |
live             | saved_state_found           | paused           |
paused           | saved_state_found           | paused           |
failed           | failed_expired              | destroyed        | error
`;

interface Row {
  from: SessionState | null;
  event: SessionEvent;
  to: SessionState;
  endReason: string | undefined;
}

function parseRows(table: string): Row[] {
  return table
    .trim()
    .split("\n")
    .flatMap((line) => {
      const [from = "", event = "", to = "", endReason = ""] = line.split("|").map((cell) => cell.trim());
      const all = SESSION_STATES.filter((state) => state !== "destroyed");
      const froms = from === "*" ? all : [from === "-" ? null : (from as SessionState)];
      return froms.map((one) => ({
        from: one,
        event: event as SessionEvent,
        to: to as SessionState,
        endReason: endReason || undefined,
      }));
    });
}

const rows = [...parseRows(INTERFACE_ROWS), ...parseRows(DECIDED_ROWS)];

describe("the state table is the interface's", () => {
  test.each(rows)("$from --$event--> $to", ({ from, event, to, endReason }) => {
    expect(findTransition(from, event)).toMatchObject({ to });
    expect(findTransition(from, event)?.endReason).toBe(endReason);
  });

  test("and refuses every other pair", () => {
    const listed = new Set(rows.map((row) => `${row.from} ${row.event}`));
    for (const from of [null, ...SESSION_STATES]) {
      for (const event of SESSION_EVENTS) {
        if (listed.has(`${from} ${event}`)) continue;
        expect(findTransition(from, event), `${from} --${event}-->`).toBeUndefined();
      }
    }
  });

  test("has one row per pair", () => {
    const pairs = TRANSITIONS.map((row) => `${row.from} ${row.event}`);
    expect(new Set(pairs).size).toBe(pairs.length);
    expect(pairs.length).toBe(rows.length);
  });

  test("never leaves destroyed", () => {
    expect(TRANSITIONS.filter((row) => row.from === "destroyed")).toEqual([]);
  });

  test("says why a session ended exactly where one ends", () => {
    for (const row of TRANSITIONS) expect(row.endReason !== undefined).toBe(row.to === "destroyed");
  });

  test("counts a new machine wherever a session comes to life from rest", () => {
    for (const row of TRANSITIONS) {
      const isFresh =
        row.to === "live" && (row.from !== "live" || ["restore", "machine_found"].includes(row.event));
      expect(row.newMachine === true, `${row.from} --${row.event}-->`).toBe(isFresh);
    }
  });
});

describe("the names of the interface", () => {
  test("session states, list filters and end reasons", () => {
    expect(SESSION_STATES).toEqual([
      "creating",
      "live",
      "paused",
      "lifetime_expired",
      "node_lost",
      "failed",
      "destroyed",
    ]);
    expect(LIST_STATES).toEqual(["live", "paused", "creating", "ended"]);
    expect(END_REASONS).toEqual([
      "client_destroy",
      "shell_exit",
      "on_detach_destroy",
      "max_lifetime",
      "paused_ttl",
      "error",
    ]);
  });

  test("destroyed is never on the wire, ended is", () => {
    expect(WIRE_STATES).not.toContain("destroyed");
    expect(WIRE_STATES).toContain("ended");
  });
});
