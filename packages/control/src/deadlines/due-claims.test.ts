/** Two claims of a session at the same instant (the clock is stopped), and a change between them. */
import { randomId } from "@vivarium/kit/id";
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { insertAttachment } from "../terminals/attachments-store.ts";
import { claimDueSessions, type DueSession, saveDueAt } from "./due.ts";
import { saveWakeAt } from "./wake-at.ts";

const LEASE_MS = 10_000;
const LATER = new Date(Date.UTC(2100, 0, 1));
const WAKE = new Date(Date.UTC(2090, 0, 1));

let db: Database;
beforeAll(async () => {
  db = openDatabase({ url: await createDatabase(), log: silentLog });
  await sql`insert into orgs (id, name, concurrent_sessions) values ('o', 'o', 10)`.execute(db);
  await sql`create or replace function service_now() returns timestamptz language sql stable as
    $$select '2080-01-01 00:00:00Z'::timestamptz$$`.execute(db);
});
afterAll(() => db.destroy());

let id: string;
beforeEach(async () => {
  await sql`delete from sessions`.execute(db);
  id = randomId();
  await sql`
    insert into sessions (id, org_id, origin, state, incarnation, size, template, egress, no_sudo, on_pty_detach,
      paused_ttl_ms, destroy_on_completion, wake_on_http, command_capture, paused_at, snapshot_id, due_at)
    values (${id}, 'o', 'api', 'paused', 1, 'small', 'base', '{"mode":"allow","allow":[]}', false, 'pause',
      1000, false, true, 'full', service_now(), 'pau_a', service_now())`.execute(db);
});

async function look(): Promise<DueSession> {
  const [taken] = await claimDueSessions(db, 1, LEASE_MS);
  if (!taken) throw new Error("nothing was due");
  return taken;
}

async function dueAt(): Promise<Date> {
  const { rows } = await sql<{ due_at: Date }>`select due_at from sessions`.execute(db);
  return rows[0]?.due_at as Date;
}

test("the next check is set if nothing happened since the claim", async () => {
  await saveDueAt(db, await look(), LATER);
  expect(await dueAt()).toEqual(LATER);
});

test("a claim from before a wake was set does not overwrite the next check of a later claim", async () => {
  const old = await look();
  await saveWakeAt(db, id, { wakeAt: WAKE });
  const current = await look();
  // The instants are equal, so only the claim id differs.
  expect(current.due_at).toEqual(old.due_at);
  await saveDueAt(db, old, LATER);
  await saveDueAt(db, current, WAKE);
  expect(await dueAt()).toEqual(WAKE);
});

test("a refused wake that was cleared or changed meanwhile is not set again", async () => {
  await saveWakeAt(db, id, { wakeAt: WAKE });
  const { wake_at: old } = await look();
  const refuse = () => saveWakeAt(db, id, { wakeAt: old, retryAt: LATER, dropAt: LATER }, old);
  expect(await refuse()).toMatchObject({ wake_at: WAKE, wake_retry_at: LATER });
  for (const wakeAt of [null, LATER]) {
    await saveWakeAt(db, id, { wakeAt });
    expect(await refuse()).toBeUndefined();
    expect((await look()).wake_at).toEqual(wakeAt);
  }
});

test("a claim from before a client attached does not set the next check", async () => {
  await sql`update sessions set state = 'live'`.execute(db);
  const old = await look();
  const attachment = { id: randomId(), sessionId: id, incarnation: 1, kind: "pty" } as const;
  expect(await insertAttachment(db, attachment, 2 * LEASE_MS)).toBe(true);
  await saveDueAt(db, old, null);
  expect(await dueAt()).toEqual(old.due_at);
});
