import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openDatabase } from "../db/pool.ts";
import { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import { type Operation, Operations } from "./operations.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
});
afterAll(() => control.close());

test("the end of a session aborts its operation, even if the previous one fails after this one started", async () => {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const operations = new Operations({ db, signals: new SessionSignals(), log: silentLog });
  const id = await control.createLive();
  const claim = async () =>
    (await operations.claim((await findSessionById(db, id)) as SessionRow, "checkpoint")) as SessionRow;
  const second = Promise.withResolvers<Operation>();
  const first = operations.run(await claim(), async (op) => {
    await operations.clear(op);
    // The next operation starts before this one has finished failing.
    const next = await claim();
    void operations.run(next, async (nextOp) => {
      second.resolve(nextOp);
      await new Promise((resolve) => nextOp.signal.addEventListener("abort", resolve));
      await operations.clear(nextOp);
    });
    throw new Error("refused");
  });
  await expect(first).rejects.toThrow("refused");
  const { signal } = await second.promise;
  operations.cancel(id);
  expect(signal.aborted).toBe(true);
  await operations.stop();
  await db.destroy();
});
