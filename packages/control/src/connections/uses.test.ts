/** Uses of credentials in the audit log. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { loadPepper } from "../access/pepper.ts";
import { auditKeyOf } from "../audit/entry.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { auditUses } from "./audit-uses.ts";
import { noteUses } from "./note-uses.ts";

const MINUTE_MS = 60_000;
/** From its beginning until its entry is written. */
const WRITTEN_MS = MINUTE_MS + 15_000;
let control: Control;
let clock: TestClock;
let db: Database;
/** The minute of the test, and a time in it. */
let minute: string;
let at: string;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
  db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
});
beforeEach(beginMinute);
afterEach(() => control.destroyAll());
afterAll(async () => {
  await db.destroy();
  await control.close();
});

/** Advances the clock to the beginning of a minute, so that what follows is within one. */
async function beginMinute(): Promise<void> {
  const now = Date.parse(await clock.at());
  await clock.advance(MINUTE_MS - (now % MINUTE_MS) + 50);
  at = await clock.at();
  minute = `${at.slice(0, 16)}:00.000Z`;
}

const later = (time: string, ms: number) => new Date(Date.parse(time) + ms).toISOString();

const connection = (name: string) => ({
  name,
  origin: `https://${name}.example.com`,
  authentication: { type: "bearer", secret: "canary-1" },
});
/** Notes reports, all or none of which are seen by what writes entries. */
const note = (...reports: EgressEntry[][]) =>
  db.transaction().execute(async (tx) => {
    for (const report of reports) await noteUses(tx, report);
  });
const request = (id: string, more: Partial<EgressEntry> = {}): EgressEntry => ({
  ...{ machine_id: `${id}-1`, at, kind: "connection", host: "api.example.com" },
  ...{ port: 443, bytes_out: 0, bytes_in: 0, verdict: "allowed", reason: "connection_used" },
  ...{ connection: "api", generation: 1 },
  ...more,
});
const write = async () =>
  await auditUses({ db, auditKey: auditKeyOf(await loadPepper(control.settings.controlDir)) });
/** Entries of uses, oldest first, once there are so many. */
async function entries(id: string, count: number) {
  return await eventually(async () => {
    const { body } = await control.ask(`GET /v1/audit?session_id=${id}&action=connection.use`);
    expect(body.entries).toHaveLength(count);
    return body.entries.toReversed();
  });
}

const origin = { origin: "https://api.example.com" };
const metasOf = (written: { meta: object }[]) => written.map(({ meta }) => meta);

test("requests of a minute are one entry of each Connection, once the minute is over", async () => {
  const id = await control.createLive({ connections: [connection("api"), connection("other")] });
  await note([
    request(id),
    request(id, { count: 3, path: "/v1/items", method: "GET", rule: 0, status: 200 }),
    request(id, { reason: "connection_upstream", is_sent: true }),
    request(id, { reason: "connection_reflected", count: 2 }),
    request(id, { verdict: "denied", reason: "connection_rule_denied", count: 7 }),
    request(id, { connection: "other" }),
  ]);
  await note([request(id), request(id, { connection: "none" })]);
  await write();
  expect(await entries(id, 0)).toEqual([]);
  await clock.advance(WRITTEN_MS);
  const common = { actor: { kind: "system", id: "system" }, outcome: "ok", request_id: "", ip: "" };
  expect(await entries(id, 2)).toMatchObject([
    { ...common, target: "api" },
    { ...common, target: "other" },
  ]);
  expect(metasOf(await entries(id, 2))).toEqual([
    { ...origin, minute, sent: 6, reflected: 2, refused: 7 },
    { origin: "https://other.example.com", minute, sent: 1 },
  ]);
});

test("each use is of the minute of its request, and one of a node whose clock is ahead of the current minute", async () => {
  const id = await control.createLive({ connections: [connection("api")] });
  const [twoAgo, oneAgo] = [later(at, -2 * MINUTE_MS), later(at, -MINUTE_MS)];
  const now = `${(await clock.at()).slice(0, 16)}:00.000Z`;
  await note(
    [
      request(id, { at: oneAgo, count: 2 }),
      request(id, { at: twoAgo, count: 4 }),
      request(id, { at: later(at, 3_600_000), count: 8 }),
      request(id, { at: later(at, 7_200_000), verdict: "denied", reason: "connection_rule_denied" }),
    ],
    [request(id, { at: oneAgo, count: 16 })],
  );
  await clock.advance(WRITTEN_MS);
  expect(metasOf(await entries(id, 3))).toEqual([
    { ...origin, minute: later(minute, -2 * MINUTE_MS), sent: 4 },
    { ...origin, minute: later(minute, -MINUTE_MS), sent: 18 },
    { ...origin, minute: now, sent: 8, refused: 1 },
  ]);
});

test("uses that are reported once the entry of their minute is written have a further entry", async () => {
  const id = await control.createLive({ connections: [connection("api")] });
  await note([request(id, { count: 3 })]);
  await clock.advance(WRITTEN_MS);
  await entries(id, 1);
  await note([request(id, { count: 2 })]);
  expect(metasOf(await entries(id, 2))).toEqual([
    { ...origin, minute, sent: 3 },
    { ...origin, minute, sent: 2 },
  ]);
});

test("a request that failed before its credential was sent is no use; of an older gateway it is one", async () => {
  const id = await control.createLive({ connections: [connection("api"), connection("other")] });
  const failed = { reason: "connection_upstream" } as const;
  await note([
    request(id, { ...failed, is_sent: false, count: 5 }),
    request(id, { ...failed, is_sent: false, connection: "other" }),
    request(id, { ...failed, count: 2 }),
  ]);
  await clock.advance(WRITTEN_MS);
  expect(metasOf(await entries(id, 1))).toEqual([{ ...origin, minute, sent: 2 }]);
});

test("a use is written also when its Connection was revoked and its session has ended meanwhile", async () => {
  const id = await control.createLive({ connections: [connection("api")] });
  await note([request(id)]);
  await control.ask(`DELETE /v1/sessions/${id}/connections/api`);
  await control.ask(`DELETE /v1/sessions/${id}`);
  await note([request(id, { verdict: "denied", reason: "connection_revoked" })]);
  await clock.advance(WRITTEN_MS);
  expect(metasOf(await entries(id, 1))).toEqual([{ ...origin, minute, sent: 1, refused: 1 }]);
});

test("of several processes one writes each entry, and the chain has them all", async () => {
  const ids = [];
  for (let count = 0; count < 3; count += 1)
    ids.push(await control.createLive({ connections: [connection("api")] }));
  await note(ids.map((id) => request(id)));
  // More than are written at once.
  await control.sql.query(
    `insert into connection_uses select session_id, name, minute - make_interval(mins => before), sent, reflected, refused
      from connection_uses, generate_series(1, 249) before where session_id = any($1)`,
    [ids],
  );
  await clock.advance(WRITTEN_MS);
  await Promise.all([write(), write(), write()]);
  const { rows } = await control.sql.query(
    "select session_id, count(*)::int, count(distinct meta->>'minute')::int as minutes from audit_log where action = 'connection.use' and session_id = any($1) group by 1",
    [ids],
  );
  expect(rows).toHaveLength(3);
  for (const row of rows) expect(row).toMatchObject({ count: 250, minutes: 250 });
  await eventually(async () => {
    const { body } = await control.ask("GET /v1/audit/verify");
    expect(body).toMatchObject({ findings: [], waiting: 0 });
  }, 30_000);
});
