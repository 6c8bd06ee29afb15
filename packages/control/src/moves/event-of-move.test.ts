import { EVENT_TYPES, type SessionEvent, TRANSITIONS } from "@vivarium/contract/api";
import { expect, test } from "vitest";
import { decide } from "../sessions/state.ts";
import { eventOfMove } from "./event-of-move.ts";

function eventAfter(from: Parameters<typeof decide>[0]["state"], event: SessionEvent, facts = {}) {
  const move = decide({ state: from, incarnation: 1 }, event);
  if (!move) throw new Error(`the table refuses ${event} of ${from}`);
  return eventOfMove(move, facts);
}

test.each([
  ["creating", "provisioned", "session.live", { state: "live" }],
  ["creating", "provision_failed", "session.failed", {}],
  ["live", "pause", "session.paused", { state: "paused", reason: "pause" }],
  ["live", "idle_timeout", "session.paused", { state: "paused", reason: "idle_timeout" }],
  ["live", "host_shutdown", "session.paused", { state: "paused", reason: "host_shutdown" }],
  ["paused", "resume", "session.resumed", { state: "live", reason: "resume" }],
  ["paused", "wake_at_reached", "session.resumed", { state: "live", reason: "wake_at_reached" }],
  ["live", "restore", "session.restored", { state: "live", reason: "restore" }],
  ["paused", "restore", "session.restored", { state: "live", reason: "restore" }],
  ["node_lost", "recover", "session.recovered", { state: "live", reason: "recover" }],
  ["live", "max_lifetime", "session.lifetime_expired", {}],
  ["paused", "max_lifetime", "session.lifetime_expired", {}],
  ["live", "node_declared_lost", "session.node_lost", {}],
  ["live", "machine_lost", "session.failed", {}],
  ["failed", "failed_expired", "session.destroyed", { end_reason: "error" }],
  ["paused", "paused_ttl_exceeded", "session.destroyed", { end_reason: "paused_ttl" }],
  ["creating", "destroy", "session.destroyed", { end_reason: "client_destroy" }],
] as const)("%s, %s: %s", (from, event, type, data) => {
  expect(eventAfter(from, event)).toEqual({ type, data });
});

test("a failure has its reason, and a restore its checkpoint", () => {
  const facts = { statusReason: "the machine ended", restoredFrom: "chk_x" };
  expect(eventAfter("live", "machine_lost", facts)?.data).toEqual({ status_reason: "the machine ended" });
  expect(eventAfter("live", "restore", facts)?.data).toMatchObject({ checkpoint_id: "chk_x" });
  expect(eventAfter("paused", "resume", facts)?.data).not.toHaveProperty("checkpoint_id");
});

test("exactly the moves that change the state or the machine emit an event", () => {
  for (const { from, event, to, newMachine } of TRANSITIONS) {
    if (from === null) continue;
    const isChange = from !== to || newMachine === true;
    expect(eventAfter(from, event) !== undefined, `${from} ${event}`).toBe(isChange);
    if (isChange) expect(EVENT_TYPES).toContain(eventAfter(from, event)?.type);
  }
});
