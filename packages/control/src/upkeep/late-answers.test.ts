/** The database answers late: a lease that lapsed while it could not be renewed is not acted on. */

import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { StoreWatch } from "../db/store-watch.ts";
import { Operations } from "../operations/operations.ts";
import { SessionSignals } from "../sessions/signals.ts";
import { StartGate } from "../sessions/start-gate.ts";
import type { UpkeepDeps } from "./deps.ts";
import { fireClocks } from "./fire-clocks.ts";
import { TICK_PARTS } from "./sweep.ts";

let db: Database;
let storeWatch: StoreWatch;
beforeAll(async () => {
  db = openDatabase({ url: await createDatabase(), log: silentLog });
  storeWatch = new StoreWatch({ db, isAlone: true });
  await sql`insert into orgs (id, name, concurrent_sessions) values ('o', 'o', 10)`.execute(db);
});
afterAll(() => db.destroy());

let id: string;
beforeEach(async () => {
  await sql`delete from sessions`.execute(db);
  id = randomId();
});

async function insertSession(state: string, origin = "api"): Promise<void> {
  await sql`
    insert into sessions (id, org_id, origin, state, incarnation, size, template, egress, no_sudo, on_pty_detach,
      paused_ttl_ms, destroy_on_completion, wake_on_http, command_capture)
    values (${id}, 'o', ${origin}, ${state}, 1, 'small', 'base', '{"mode":"allow","allow":[]}', false, 'destroy',
      1000, false, true, 'full')`.execute(db);
}

/** Runs a part once, and returns what it did. */
async function pass(part: string): Promise<string[]> {
  const done: string[] = [];
  const log = { ...silentLog, info: () => {}, warn: () => {} } as unknown as Log;
  const signals = new SessionSignals();
  const operations = new Operations({ db, signals, log });
  const deps = {
    auditKey: Buffer.alloc(32),
    db,
    storeWatch,
    signals,
    log,
    leasesKept: new Set(),
    provisioner: { start: () => done.push("adopted"), cancel: () => done.push("destroyed") },
    nodes: { deleteMachine: async () => {}, deleteSnapshot: async () => {}, listMachines: async () => [] },
    operations,
  };
  await TICK_PARTS[part]?.(deps as unknown as UpkeepDeps);
  await operations.stop();
  const { rows } = await sql<{ op_id: string | null }>`select op_id from sessions`.execute(db);
  if (rows[0]?.op_id !== "theirs" && part === "take over operations") done.push("taken over");
  return done;
}

/** Leases that lapsed after the database's last answer. */
test.each([
  ["adopt provisioning", "creating", sql`provision_claimed_until = clock_timestamp()`, "adopted"],
  [
    "take over operations",
    "live",
    sql`op = 'settle', op_id = 'theirs', op_input = '{}', op_claimed_until = clock_timestamp()`,
    "taken over",
  ],
  ["destroy due sessions", "live", sql`destroy_after = clock_timestamp()`, "destroyed"],
])("%s judges leases as of the database's last answer", async (part, state, lapse, done) => {
  await insertSession(state);
  await storeWatch.look();
  await new Promise((resolve) => setTimeout(resolve, 5));
  await sql`update sessions set ${lapse}`.execute(db);
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(await pass(part)).toEqual([]);
  await storeWatch.look();
  expect(await pass(part)).toEqual([done]);
});

test("a provisional session is not provisioned by another process", async () => {
  await insertSession("creating");
  const lapsed = sql`provision_claimed_until = now() - interval '1 s'`;
  await sql`update sessions set ${lapsed}, destroy_after = now() - interval '1 s'`.execute(db);
  await storeWatch.look();
  expect(await pass("adopt provisioning")).toEqual([]);
  await sql`update sessions set destroy_after = null`.execute(db);
  expect(await pass("adopt provisioning")).toEqual(["adopted"]);
});

test("a client whose lease lapsed while the database did not answer does not count as detached", async () => {
  await insertSession("live");
  await sql`insert into attachments (id, session_id, incarnation, kind, lease_until)
    values (${randomId()}, ${id}, 1, 'pty', now() - interval '1 minute')`.execute(db);
  const fire = async (...stale: boolean[]) => {
    await sql`update sessions set due_at = service_now() - interval '1 s'`.execute(db);
    const background: Promise<unknown>[] = [];
    const deps = {
      auditKey: Buffer.alloc(32),
      startGate: new StartGate(),
      db,
      log: silentLog,
      signals: new SessionSignals(),
      storeWatch: { areLeasesStale: () => stale.shift() ?? false },
      activity: { flush: async () => {}, isInUse: () => false },
      attachments: { renew: async () => {} },
      operations: { backgroundCount: 0, runInBackground: (work: Promise<unknown>) => background.push(work) },
      nodes: { deleteMachine: async () => {} },
    };
    await fireClocks(deps as unknown as UpkeepDeps);
    await Promise.all(background);
    const { rows } = await sql<{ state: string }>`select state from sessions`.execute(db);
    return rows[0]?.state;
  };
  // Leases are fresh when the session is claimed, and stale once its row is locked.
  expect(await fire(false, true)).toBe("live");
  expect(await fire(false, false)).toBe("destroyed");
});
