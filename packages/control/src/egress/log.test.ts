import { LIMITS } from "@vivarium/contract/api";
import type { EgressEntry } from "@vivarium/contract/gateway";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { openDatabase } from "../db/pool.ts";
import { deleteOldLines, moveCursor, readCursor } from "./log-store.ts";

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
afterEach(() => control.destroyAll());

let cursor = 0;
function report(entries: Partial<EgressEntry>[], id: string): void {
  cursor += 1;
  const whole = entries.map((entry) => ({
    machine_id: `${id}-1`,
    at: "2027-03-01T09:30:00.125Z",
    kind: "tls" as const,
    host: "api.example.com",
    port: 443,
    bytes_out: 10,
    bytes_in: 20,
    verdict: "allowed" as const,
    reason: "name_allowed" as const,
    ...entry,
  }));
  control.node.report = { ...control.node.report, entries: whole, cursor: `c${cursor}` };
}
const read = async (id: string, query = "") => await control.ask(`GET /v1/sessions/${id}/egress-log${query}`);
const untilLines = async (id: string, count: number) =>
  await eventually(async () => expect((await read(id, "?limit=200")).body.entries).toHaveLength(count));
/** Number of kept lines of each part. */
const countLines = async (id: string) => {
  const { rows } = await control.sql.query(
    `select case kind when 'dns' then 'questions' when 'connection' then 'requests' else 'connections' end as what,
        decision, count(*)::int as lines
      from egress_log where session_id = $1 group by 1, 2 order by 1, 2`,
    [id],
  );
  return rows.map(({ what, decision, lines }) => [what, decision, lines]);
};

test.each([
  ["only that lines were lost", { lost: 3 }],
  ["only which previews were used", { active_sessions: ["nobody"] }],
])("a report with %s is read once", async (_title, fields) => {
  cursor += 1;
  control.node.report = { ...control.node.report, ...fields, cursor: `c${cursor}` };
  await eventually(() => expect(control.node.report).toMatchObject({ lost: 0, active_sessions: [] }));
});

test("a line shows the host that was reached, or refused and why", async () => {
  const id = await control.createLive();
  report(
    [
      {},
      {
        kind: "tcp",
        host: undefined,
        address: "8.8.4.4",
        port: 22,
        verdict: "denied",
        reason: "port_not_allowed",
        count: 3,
        bytes_in: 0,
      },
    ],
    id,
  );
  await untilLines(id, 2);
  expect((await read(id)).body).toEqual({
    entries: [
      {
        at: "2027-03-01T09:30:00.125Z",
        kind: "tcp",
        address: "8.8.4.4",
        port: 22,
        decision: "denied",
        reason: "port_not_allowed",
        bytes_out: 10,
        bytes_in: 0,
        count: 3,
      },
      {
        at: "2027-03-01T09:30:00.125Z",
        kind: "tls",
        host: "api.example.com",
        port: 443,
        decision: "allowed",
        reason: "name_allowed",
        bytes_out: 10,
        bytes_in: 20,
        count: 1,
      },
    ],
  });
});

test("a line shows that an address is a private one, which the operator opened", async () => {
  const id = await control.createLive();
  report(
    [
      { address: "10.1.2.3", port: 1 },
      { kind: "dns", address: "192.168.0.1", port: 2 },
      { address: "93.184.216.34", port: 3 },
      { address: "10.1.2.3", port: 4, verdict: "denied", reason: "never_address" },
      { address: undefined, port: 5 },
    ],
    id,
  );
  await untilLines(id, 5);
  const { entries } = (await read(id)).body;
  expect(entries.map((entry: { private?: boolean }) => entry.private)).toEqual([
    ...[undefined, undefined, undefined],
    ...[true, true],
  ]);
});

test("a session without lines has an empty log", async () => {
  expect((await read(await control.createLive())).body).toEqual({ entries: [] });
});

test("lines page from the newest to the oldest, each once", async () => {
  const id = await control.createLive();
  report(
    Array.from({ length: 7 }, (_, index) => ({ port: index + 1 })),
    id,
  );
  await untilLines(id, 7);
  const ports: number[] = [];
  let query = "?limit=3";
  for (let pages = 0; pages < 3; pages++) {
    const { body } = await read(id, query);
    ports.push(...body.entries.map(({ port }: { port: number }) => port));
    query = `?limit=3&cursor=${body.next_cursor}`;
    if (pages === 2) expect(body).not.toHaveProperty("next_cursor");
  }
  expect(ports).toEqual([7, 6, 5, 4, 3, 2, 1]);
});

test("lines are chosen by decision, host and time", async () => {
  const id = await control.createLive();
  report(
    [
      { port: 1, at: "2027-03-01T09:00:00.000Z" },
      { port: 2, at: "2027-03-01T10:00:00.000Z", verdict: "denied", reason: "name_not_allowed" },
      { port: 3, at: "2027-03-01T11:00:00.000Z", host: "other.example.com" },
    ],
    id,
  );
  await untilLines(id, 3);
  const portsOf = async (query: string) =>
    (await read(id, query)).body.entries.map(({ port }: { port: number }) => port);
  expect(await portsOf("?decision=denied")).toEqual([2]);
  expect(await portsOf("?decision=allowed")).toEqual([3, 1]);
  expect(await portsOf("?host=Other.example.com")).toEqual([3]);
  expect(await portsOf("?since=2027-03-01T10:00:00Z")).toEqual([3, 2]);
  expect(await portsOf("?since=2027-03-01T11:00:00%2B01:00&decision=denied")).toEqual([2]);
});

test.each(["?limit=0", "?limit=x", "?cursor=x", "?decision=maybe", "?since=yesterday", "?host=a&host=b"])(
  "%s is refused",
  async (query) => {
    const id = await control.createLive();
    expect(await read(id, query)).toMatchObject({ status: 400, body: { code: "validation" } });
  },
);

test("of processes that read from the same cursor only one saves the lines", async () => {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const move = (from: string | undefined, to: string) => moveCursor(db, "another", { from, to });
  const moved = [
    await move(undefined, "a"),
    await move(undefined, "a"),
    await move("a", "b"),
    await move("a", "b"),
    await move("b", "c"),
  ];
  expect(await readCursor(db, "another").finally(() => db.destroy())).toBe("c");
  expect(moved).toEqual([true, false, true, false, true]);
});

test("names that a guest made up of anything do not stop the log", async () => {
  const id = await control.createLive();
  report([{ host: "a\u0000b.example.com" }, { at: "not a time" }, { machine_id: "nobodys-1" }, {}], id);
  await untilLines(id, 3);
  const hosts = (await read(id)).body.entries.map(({ host }: { host: string }) => host);
  expect(hosts).toEqual(["api.example.com", "api.example.com", "a\ufffdb.example.com"]);
});

test("the log of an ended session stays readable to its owner", async () => {
  const id = await control.createLive();
  report([{}], id);
  await untilLines(id, 1);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await read(id)).body.entries).toHaveLength(1);
  const other = await control.addKey();
  expect((await control.ask(`GET /v1/sessions/${id}/egress-log`, { key: other })).status).toBe(404);
  expect((await read("nobody")).status).toBe(404);
});

test("a flood of questions or of refusals pushes out no line of a connection that was let through", async () => {
  const id = await control.createLive();
  report([{ host: "secret.example.com" }], id);
  await untilLines(id, 1);
  await control.sql.query(
    `insert into egress_log (session_id, at, kind, decision, reason, bytes_out, bytes_in, count)
      select $1, now(), kind, decision, 'mode_allow', 0, 0, 1
      from generate_series(1, $2::int), (values ('dns', 'allowed'), ('dns', 'denied'), ('tcp', 'denied')) as part (kind, decision)`,
    [id, LIMITS.egressLogLines + 5],
  );
  report([{ kind: "dns", host: "last.example.com" }], id);
  await eventually(async () => expect((await read(id)).body.entries[0]?.host).toBe("last.example.com"));
  expect(await countLines(id)).toEqual([
    ["connections", "allowed", 1],
    ["connections", "denied", LIMITS.egressLogLines],
    ["questions", "allowed", LIMITS.egressLogLines],
    ["questions", "denied", LIMITS.egressLogLines],
  ]);
});

test("a flood of connections pushes out no request through a Connection, which is the only trace of its use", async () => {
  const id = await control.createLive();
  report([{ kind: "connection", connection: "api", reason: "connection_used" }], id);
  await untilLines(id, 1);
  await control.sql.query(
    `insert into egress_log (session_id, at, kind, decision, reason, bytes_out, bytes_in, count)
      select $1, now(), 'http', decision, 'mode_allow', 0, 0, 1
      from generate_series(1, $2::int), (values ('allowed'), ('denied')) as part (decision)`,
    [id, LIMITS.egressLogLines + 5],
  );
  report([{ host: "last.example.com" }], id);
  await eventually(async () => expect((await read(id)).body.entries[0]?.host).toBe("last.example.com"));
  expect(await countLines(id)).toEqual([
    ["connections", "allowed", LIMITS.egressLogLines],
    ["connections", "denied", LIMITS.egressLogLines],
    ["requests", "allowed", 1],
  ]);
});

test("a session keeps its newest lines within the retention", async () => {
  const id = await control.createLive();
  await control.sql.query(
    `insert into egress_log (session_id, at, kind, decision, reason, bytes_out, bytes_in, count)
      select $1, now(), 'tcp', 'allowed', 'mode_allow', 0, 0, 1 from generate_series(1, $2::int)`,
    [id, LIMITS.egressLogLines],
  );
  report([{ port: 1 }, { port: 2 }], id);
  await eventually(async () => expect((await read(id)).body.entries[0]?.port).toBe(2));
  expect(await countLines(id)).toEqual([["connections", "allowed", LIMITS.egressLogLines]]);

  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  await clock.advance(LIMITS.egressLogRetentionMs + 3_600_000);
  await deleteOldLines(db).finally(() => db.destroy());
  const kept = (await read(id)).body.entries.map(({ port }: { port: number }) => port);
  expect(kept).toEqual([2, 1]);
});
