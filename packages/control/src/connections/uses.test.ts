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
let control: Control;
let clock: TestClock;
let db: Database;
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
}

const connection = (name: string) => ({
  name,
  origin: `https://${name}.example.com`,
  authentication: { type: "bearer", secret: "canary-1" },
});
const note = (entries: EgressEntry[]) => db.transaction().execute((tx) => noteUses(tx, entries));
const request = (id: string, more: Partial<EgressEntry> = {}): EgressEntry => ({
  ...{ machine_id: `${id}-1`, at: "2027-03-01T09:30:00.125Z", kind: "connection", host: "api.example.com" },
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

test("requests of a minute are one entry of each Connection, once the minute is over", async () => {
  const id = await control.createLive({ connections: [connection("api"), connection("other")] });
  const minute = `${(await clock.at()).slice(0, 16)}:00.000Z`;
  await note([
    request(id),
    request(id, { count: 3, path: "/v1/items", method: "GET", rule: 0, status: 200 }),
    request(id, { reason: "connection_upstream" }),
    request(id, { reason: "connection_reflected", count: 2 }),
    request(id, { verdict: "denied", reason: "connection_rule_denied", count: 7 }),
    request(id, { connection: "other" }),
  ]);
  await note([request(id), request(id, { connection: "none" })]);
  await write();
  expect(await entries(id, 0)).toEqual([]);
  await clock.advance(MINUTE_MS);
  const common = { actor: { kind: "system", id: "system" }, outcome: "ok", request_id: "", ip: "" };
  expect(await entries(id, 2)).toMatchObject([
    {
      ...{ ...common, target: "api" },
      meta: { origin: "https://api.example.com", minute, sent: 6, reflected: 2, refused: 7 },
    },
    { ...common, target: "other", meta: { origin: "https://other.example.com", minute, sent: 1 } },
  ]);
  await note([request(id)]);
  await clock.advance(MINUTE_MS);
  expect((await entries(id, 3)).map(({ meta }: { meta: { sent: number } }) => meta.sent)).toEqual([6, 1, 1]);
});

test("a use is written also when its Connection was revoked and its session has ended meanwhile", async () => {
  const id = await control.createLive({ connections: [connection("api")] });
  await note([request(id)]);
  await control.ask(`DELETE /v1/sessions/${id}/connections/api`);
  await control.ask(`DELETE /v1/sessions/${id}`);
  await note([request(id, { verdict: "denied", reason: "connection_revoked" })]);
  await clock.advance(MINUTE_MS);
  expect((await entries(id, 1)).map(({ meta }: { meta: object }) => meta)).toMatchObject([
    { sent: 1, refused: 1 },
  ]);
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
  await clock.advance(MINUTE_MS);
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
