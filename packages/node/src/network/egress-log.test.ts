import type { EgressEntry } from "@vivarium/contract/gateway";
import { expect, it } from "vitest";
import { EgressLog } from "./egress-log.ts";

const entry = (port: number): EgressEntry => ({
  machine_id: "aaaaaaaaaaaaaaaaaaaaa-1",
  at: "2026-01-01T00:00:00.000Z",
  kind: "tcp",
  port,
  bytes_out: 0,
  bytes_in: 0,
  verdict: "allowed",
  reason: "mode_allow",
});
const entries = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => entry(from + i));
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);
const ports = (page: { entries: EgressEntry[] }) => page.entries.map(({ port }) => port);

it("returns lines after the cursor, and the same lines again for the same cursor", () => {
  const log = new EgressLog();
  log.add(entries(1, 4));
  const first = log.pageAfter(undefined);
  expect(ports(first)).toEqual([1, 2, 3]);
  log.add(entries(4, 6));
  expect(ports(log.pageAfter(first.cursor))).toEqual([4, 5]);
  const again = log.pageAfter(first.cursor);
  expect(ports(again)).toEqual([4, 5]);
  expect(log.pageAfter(again.cursor)).toMatchObject({ entries: [], lost: 0 });
});

it("returns at most 5,000 lines at once", () => {
  const log = new EgressLog();
  log.add(entries(0, 5_003));
  const first = log.pageAfter(undefined);
  expect(first.entries).toHaveLength(5_000);
  expect(ports(log.pageAfter(first.cursor))).toEqual([5_000, 5_001, 5_002]);
});

it("drops the oldest lines beyond its bound, and counts them with those that were lost before", () => {
  const log = new EgressLog(100);
  log.add(entries(0, 250), 7);
  const page = log.pageAfter(undefined);
  expect(ports(page)).toEqual(Array.from({ length: 100 }, (_, i) => 150 + i));
  expect(page.lost).toBe(157);
  log.add(entries(1, 2), 3);
  expect(log.pageAfter(page.cursor)).toMatchObject({ entries: [entry(1)], lost: 3 });
});

it("drops lines of the machines with the most, and leaves the others theirs", () => {
  const log = new EgressLog(100);
  const of = (machine_id: string, count: number) => entries(0, count).map((one) => ({ ...one, machine_id }));
  log.add(of("quiet", 20));
  log.add(of("loud", 500));
  log.add(of("louder", 5_000));
  const page = log.pageAfter(undefined);
  const kept = Object.groupBy(page.entries, ({ machine_id }) => machine_id);
  expect(kept.quiet).toEqual(of("quiet", 20));
  expect(kept.loud).toEqual(of("loud", 500).slice(-40));
  expect(kept.louder).toEqual(of("louder", 5_000).slice(-40));
  expect(page.lost).toBe(5_520 - 100);
});

it("drops what was let through first, then what was refused, and uses of credentials last", () => {
  const log = new EgressLog(100);
  const use = { kind: "connection", reason: "connection_used", connection: "api" } as const;
  const refused = { verdict: "denied", reason: "port_not_allowed" } as const;
  const of = (more: Partial<EgressEntry>, from: number, count: number) =>
    entries(from, from + count).map((one) => ({ ...one, ...more }));
  log.add(of({ ...use, is_sent: true }, 0, 20));
  // An older gateway does not say it.
  log.add(of(use, 20, 20));
  log.add(of(refused, 100, 40));
  log.add(of({}, 200, 3_000));
  const first = log.pageAfter(undefined);
  expect(ports(first)).toEqual([...range(0, 40), ...range(100, 140), ...range(3_180, 3_200)]);
  expect(first.lost).toBe(2_980);
  log.add(of({ ...use, reason: "connection_upstream", is_sent: false }, 4_000, 3_000));
  const second = log.pageAfter(undefined);
  expect(ports(second)).toEqual([...range(0, 40), ...range(6_940, 7_000)]);
  expect(second.lost).toBe(6_080 - 100);
  log.add(of({ ...use, is_sent: true }, 8_000, 3_000));
  const third = log.pageAfter(undefined);
  expect(ports(third)).toEqual(range(10_900, 11_000));
  expect(third.lost).toBe(9_080 - 100);
});

it("drops no use of a credential for a flood of another machine, and of the rest leaves each machine its share", () => {
  const log = new EgressLog(100);
  const of = (machine_id: string, more: Partial<EgressEntry>, count: number) =>
    entries(0, count).map((one) => ({ ...one, machine_id, ...more }));
  const uses = of("quiet", { kind: "connection", reason: "connection_used", is_sent: true }, 30);
  log.add(uses);
  log.add(of("quiet", {}, 20));
  log.add(of("loud", { verdict: "denied", reason: "port_not_allowed" }, 5_000));
  const page = log.pageAfter(undefined);
  const kept = Object.groupBy(page.entries, ({ machine_id }) => machine_id);
  expect(kept.quiet).toEqual([...uses, ...of("quiet", {}, 20)]);
  expect(kept.loud).toHaveLength(50);
  expect(page.lost).toBe(4_950);
});

it("treats a cursor of an earlier process as no cursor", () => {
  const log = new EgressLog();
  const strange = new EgressLog().pageAfter(undefined).cursor;
  log.add(entries(1, 3));
  for (const cursor of [strange, "", "x.y.z", "9.9"]) expect(ports(log.pageAfter(cursor))).toEqual([1, 2]);
});

it("reports a session whose previews were used until its page was acknowledged", () => {
  const log = new EgressLog();
  log.markActive(["a"]);
  const first = log.pageAfter(undefined);
  expect(first.active_sessions).toEqual(["a"]);
  expect(log.pageAfter(undefined).active_sessions).toEqual(["a"]);
  log.markActive(["b"]);
  const second = log.pageAfter(first.cursor);
  expect(second.active_sessions).toEqual(["b"]);
  expect(log.pageAfter(second.cursor).active_sessions).toEqual([]);
});
