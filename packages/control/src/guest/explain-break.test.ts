import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openDatabase } from "../db/pool.ts";
import { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import { explainBreak } from "./explain-break.ts";

const WORDS = { paused: "paused", exchanged: "exchanged", unknown: "unknown" };

let control: Control;
let deps: Parameters<typeof explainBreak>[0];
let db: ReturnType<typeof openDatabase>;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
  db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  deps = { db, signals: new SessionSignals(), patienceMs: 300 };
});
afterAll(async () => {
  await db.destroy();
  await control.close();
});

test.each(["pause", "restore"])(
  "a %s that does not end is the reason, and the error is not retryable",
  async (op) => {
    const id = await control.createLive();
    const then = (await findSessionById(db, id)) as SessionRow;
    await control.sql.query(
      "update sessions set op = $2, op_id = 'x', op_input = '{}', op_claimed_until = now() + interval '1 hour' where id = $1",
      [id, op],
    );
    const error = await explainBreak(deps, then, WORDS, new Error("broken"));
    expect([error.code, error.message]).toEqual(["conflict", op === "pause" ? "paused" : "exchanged"]);
  },
);
