import type { SessionRecord } from "@vivarium/sdk";
import { expect, test } from "vitest";
import { findChanges } from "./changes.ts";

const now = new Date("2027-01-01T10:00:00Z");
const at = now.toISOString();

function session(id: string, facts: Partial<SessionRecord> = {}): SessionRecord {
  const times = { created_at: at, last_active_at: at };
  return { session_id: id, state: "live", size: "small", vcpus: 1, mem_mb: 1024, ...times, ...facts };
}
const known = (...sessions: SessionRecord[]) => new Map(sessions.map((each) => [each.session_id, each]));
const nobody = new Map<string, SessionRecord>();

test("an unchanged session is no change", () => {
  const same = session("a", { active_since: at });
  expect(findChanges(known(same), [{ ...same, last_active_at: "later" }], nobody, now)).toEqual([]);
});

test("changes come in the order in which sessions were made, ends first", () => {
  const before = known(session("old"), session("gone", { name: "web" }));
  const after = [
    session("new", { state: "creating", status_detail: "starting" }),
    session("old", { state: "paused" }),
  ];
  const ended = known(session("gone", { state: "ended", end_reason: "paused_ttl" }));
  expect(findChanges(before, after, ended, now)).toEqual([
    { at, session_id: "gone", name: "web", from: "live", to: "ended", detail: "paused_ttl" },
    { at, session_id: "old", from: "live", to: "paused" },
    { at, session_id: "new", to: "creating", detail: "starting" },
  ]);
});

test("a session that failed says why", () => {
  const failed = session("a", { state: "failed", status_reason: "no room" });
  expect(findChanges(known(session("a", { state: "creating" })), [failed], nobody, now)).toEqual([
    { at, session_id: "a", from: "creating", to: "failed", detail: "no room" },
  ]);
});

test("a state that was left and entered again between two polls is a change", () => {
  const before = known(
    session("a", { active_since: "1" }),
    session("b", { state: "paused", paused_at: "1" }),
  );
  const after = [session("b", { state: "paused", paused_at: "2" }), session("a", { active_since: "2" })];
  expect(findChanges(before, after, nobody, now).map(({ detail }) => detail)).toEqual([
    "was paused in between",
    "was live in between",
  ]);
});
