import { EgressEntry, Flows } from "@vivarium/contract/gateway";
import { describe, expect, test } from "vitest";
import { EgressLog } from "./lines.ts";

const entry = (overrides: Partial<EgressEntry> = {}): EgressEntry => ({
  ...{ machine_id: "mch_1", at: "2026-01-01T00:00:00.000Z", kind: "tls", host: "a.example", port: 443 },
  ...{ bytes_out: 10, bytes_in: 20, verdict: "denied", reason: "name_not_allowed" },
  ...overrides,
});

describe("lines of the egress log", () => {
  test("that are alike become one, refusals and questions; a flow that was let through has its own", () => {
    const log = new EgressLog();
    for (let at = 0; at < 3; at += 1) log.add(entry());
    log.add(entry({ host: "b.example" }));
    for (let at = 0; at < 2; at += 1)
      log.add(entry({ kind: "dns", verdict: "allowed", reason: "name_allowed" }));
    for (let at = 0; at < 2; at += 1) log.add(entry({ verdict: "allowed", reason: "name_allowed" }));
    const { entries } = log.take() ?? { entries: [] };
    expect(entries).toMatchObject([
      { count: 3, bytes_out: 30, bytes_in: 60 },
      { host: "b.example" },
      { kind: "dns", count: 2 },
      { verdict: "allowed" },
      { verdict: "allowed" },
    ]);
    expect(entries[1]).not.toHaveProperty("count");
    expect(() => entries.map((line) => EgressEntry.parse(line))).not.toThrow();
    expect(log.take()).toBeUndefined();
  });

  test("of requests become one only if Connection, method, path, rule, status, outcome and minute are equal", () => {
    const request = (overrides: Partial<EgressEntry> = {}) =>
      entry({
        ...{ kind: "connection", verdict: "allowed", reason: "connection_used", connection: "api" },
        ...{ method: "GET", path: "/v1/items", rule: 0, status: 200 },
        ...overrides,
      });
    const log = new EgressLog();
    for (let at = 0; at < 3; at += 1) log.add(request());
    const others: Partial<EgressEntry>[] = [
      { connection: "other" },
      { method: "HEAD" },
      { path: "/v1/item" },
      { rule: 1 },
      { status: 201 },
      { is_unscanned: true },
      { is_sent: false },
      { at: "2026-03-04T05:07:00.000Z" },
      { reason: "connection_reflected" },
      { verdict: "denied", reason: "connection_rule_denied" },
    ];
    for (const other of others) log.add(request(other));
    const { entries } = log.take() ?? { entries: [] };
    expect(entries).toHaveLength(1 + others.length);
    expect(entries[0]).toMatchObject({ count: 3, bytes_out: 30, bytes_in: 60, path: "/v1/items" });
    expect(() => entries.map((line) => EgressEntry.parse(line))).not.toThrow();
  });

  test("of a machine with a thousand requests a second are whole, and more are summed up by Connection and outcome", () => {
    const connection = {
      kind: "connection",
      connection: "api",
      generation: 1,
      rule: 0,
      status: 200,
    } as const;
    const request = (at: number) =>
      entry({
        ...connection,
        ...{ verdict: "allowed", reason: "connection_used", method: "GET", path: `/${at}` },
      });
    const log = new EgressLog();
    for (let at = 0; at < 2_000; at += 1) log.add(request(at));
    log.add({ ...request(0), reason: "connection_reflected" });
    log.add({ ...request(5_000), connection: "other" });
    const [first, second] = [log.take(), log.take()];
    expect([first?.entries.length, second?.entries.length, first?.lost]).toEqual([1_000, 3, 0]);
    expect(second?.entries).toMatchObject([
      { reason: "connection_used", connection: "api", generation: 1, count: 1_000, bytes_out: 10_000 },
      { reason: "connection_reflected", method: "GET" },
      { reason: "connection_used", connection: "other" },
    ]);
    for (const name of ["method", "path", "rule", "status"])
      expect(second?.entries[0]).not.toHaveProperty(name);
    expect(() => Flows.parse(second)).not.toThrow();
  });

  test("that sum up requests keep apart whether the credential was sent", () => {
    const failed = (at: number, is_sent: boolean) =>
      entry({
        ...{ kind: "connection", verdict: "allowed", reason: "connection_upstream", connection: "api" },
        ...{ generation: 1, method: "GET", path: `/${at}`, status: 502, is_sent },
      });
    const log = new EgressLog();
    for (let at = 0; at < 1_000; at += 1) log.add(failed(at, true));
    for (let at = 1_000; at < 1_300; at += 1) log.add(failed(at, false));
    for (let at = 1_300; at < 1_350; at += 1) log.add(failed(at, true));
    expect(log.take()?.entries).toHaveLength(1_000);
    expect(log.take()?.entries).toMatchObject([
      { is_sent: false, count: 300 },
      { is_sent: true, count: 50 },
    ]);
  });

  test("of requests keep their number while the node takes no report, however many machines make them", () => {
    const log = new EgressLog();
    let made = 0;
    for (let machine = 0; machine < 60; machine += 1)
      for (let at = 0; at < 1_000; at += 1, made += 1)
        log.add(
          entry({
            ...{ machine_id: `mch_${machine}`, kind: "connection", verdict: "allowed", connection: "api" },
            ...{ reason: "connection_used", method: "GET", path: `/${at}` },
          }),
        );
    const refused = log.take();
    log.giveBack(refused ?? { entries: [], lost: 0, active_sessions: [] });
    let counted = 0;
    for (let flows = log.take(); flows; flows = log.take()) {
      expect(flows.lost).toBe(0);
      counted += flows.entries.reduce((sum, { count = 1 }) => sum + count, 0);
    }
    expect(counted).toBe(made);
  });

  test("of one machine that is flooded are bounded and counted, and cost another none", () => {
    const log = new EgressLog();
    for (let at = 0; at < 10_000; at += 1) log.add(entry({ host: `n${at}.example` }));
    log.add(entry({ machine_id: "mch_2" }));
    const flows = log.take();
    expect(flows?.entries).toHaveLength(201);
    expect(flows?.lost).toBe(9_800);
    expect(flows?.entries.at(-1)).toMatchObject({ machine_id: "mch_2" });
    expect(() => Flows.parse(flows)).not.toThrow();
    for (let at = 0; at < 300; at += 1) log.add(entry({ host: `n${at}.example` }));
    expect(log.take()?.entries).toHaveLength(200);
  });

  test("of each kind are all logged, questions and connections, refused and let through, while another kind floods", () => {
    const question = (at: number) => entry({ kind: "dns", port: 53, host: `n${at}.example` });
    const connection = (at: number) => entry({ host: `n${at}.example`, verdict: "allowed" });
    const refused = (at: number) => entry({ host: `n${at}.example` });
    for (const [flood, logged] of [
      [question, connection],
      [connection, question],
      [refused, connection],
      [connection, refused],
    ] as const) {
      const log = new EgressLog();
      for (let at = 0; at < 5_000; at += 1) log.add(flood(at));
      for (let at = 0; at < 200; at += 1) log.add(logged(at));
      for (let at = 0; at < 5_000; at += 1) log.add(flood(at));
      const flows = log.take();
      const { kind, verdict } = logged(0);
      const found = flows?.entries.filter((line) => line.kind === kind && line.verdict === verdict);
      expect(found).toHaveLength(200);
      expect(flows?.entries).toHaveLength(400);
      log.giveBack(flows ?? { entries: [], lost: 0, active_sessions: [] });
      expect(log.take()?.entries).toEqual(flows?.entries);
    }
  });

  test("come in calls of a thousand, and back where a call failed", () => {
    const log = new EgressLog();
    for (let at = 0; at < 1_500; at += 1)
      log.add(entry({ machine_id: `mch_${at % 10}`, host: `n${at}.example` }));
    log.active("ses_1");
    const first = log.take();
    expect(first?.entries).toHaveLength(1000);
    expect(log.take()?.entries).toHaveLength(500);
    if (first) log.giveBack(first);
    const again = log.take();
    expect(again?.entries).toEqual(first?.entries);
    expect(again?.active_sessions).toEqual(["ses_1"]);
  });
});
