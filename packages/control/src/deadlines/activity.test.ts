import { sleep } from "@vivarium/kit/clock";
import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openDatabase } from "../db/pool.ts";
import { Activity } from "./activity.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());
afterEach(() => control.destroyAll());

/** Time for several flushes. */
const WRITTEN_WITHIN_MS = 1_000;

const written = async (id: string): Promise<Date> => {
  const { rows } = await control.sql.query("select last_active_at from sessions where id = $1", [id]);
  return rows[0].last_active_at;
};
/** Activity of an operation by the session's owner is flushed. */
const expectWritten = async (id: string) => {
  await sleep(5);
  expect((await control.use(id, () => control.exec(id))).status).toBe(200);
};

test("an operation on another organisation's session is no activity of it", async () => {
  const id = await control.createLive();
  await expectWritten(id);
  const key = await control.addKey();
  const before = await written(id);
  const body = { command: ["true"] };
  for (const [call, given] of [
    [`POST /v1/sessions/${id}/exec`, body],
    ["POST /v1/sessions/batch/exec", { session_ids: [id], ...body }],
    [`PUT /v1/sessions/${id}/files/batch`, { files: [{ path: "a", content: "" }] }],
    [`GET /v1/sessions/${id}/processes`, undefined],
  ] as const) {
    const { body: answer } = await control.ask(call, { key, body: given });
    expect(JSON.stringify(answer)).toContain("not_found");
  }
  await sleep(WRITTEN_WITHIN_MS);
  expect(await written(id)).toEqual(before);
  await expectWritten(id);
});

test("a check of the deadlines waits for a flush in flight", async () => {
  const id = await control.createLive();
  const before = await written(id);
  await sleep(5);
  const holder = new pg.Client({ connectionString: control.settings.databaseUrl });
  await holder.connect();
  await holder.query("begin");
  await holder.query("select from sessions where id = $1 for update", [id]);
  expect((await control.exec(id)).status).toBe(200);
  await eventually(async () => {
    const { rowCount } = await control.sql.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
        and query like 'update sessions set last_active_at%'`,
    );
    expect(rowCount).toBe(1);
  });
  const order: string[] = [];
  const look = control.app.checkDeadlines().then(() => order.push("looked"));
  await sleep(300);
  order.push("unlocked");
  await holder.query("commit");
  await holder.end();
  await look;
  expect(order).toEqual(["unlocked", "looked"]);
  expect((await written(id)).getTime()).toBeGreaterThan(before.getTime());
});

test("unflushed activity is known to a reader of rows, even if it is flushed meanwhile", async () => {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const activity = new Activity({ db, log: silentLog });
  const id = await control.createLive();
  activity.touch(id);
  const unflushed = activity.unflushed();
  await activity.flush();
  expect([unflushed(id), activity.unflushed()(id)]).toEqual([expect.any(Date), undefined]);
  await db.destroy();
});

test("ids that no session can have do not make a flush fail", async () => {
  const id = await control.createLive();
  const body = { command: ["true"] };
  await control.ask("POST /v1/sessions/%00/exec", { body });
  await control.ask("POST /v1/sessions/batch/exec", { body: { session_ids: ["\u0000", id], ...body } });
  await sleep(WRITTEN_WITHIN_MS);
  await expectWritten(id);
});
