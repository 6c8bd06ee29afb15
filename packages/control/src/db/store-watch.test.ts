import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, onTestFinished, test } from "vitest";
import { eventually, startControl } from "../../test-support/control.ts";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { openDatabase } from "./pool.ts";
import { StoreWatch } from "./store-watch.ts";

async function watching({ isAlone = true } = {}) {
  const db = openDatabase({ url: await createDatabase(), log: silentLog });
  onTestFinished(() => db.destroy());
  let now = 0;
  let wallNow = 1_800_000_000_000;
  return {
    watch: new StoreWatch({ db, isAlone, now: () => now, wallNow: () => wallNow }),
    wait: (ms: number) => {
      now += ms;
      wallNow += ms;
    },
    suspend: (ms: number) => {
      wallNow += ms;
    },
  };
}

type Watching = Awaited<ReturnType<typeof watching>>;

/** Expects leases to be stale for exactly so long, with one look a second. */
async function expectStaleFor(seconds: number, { watch, wait }: Watching): Promise<void> {
  for (let second = 1; second < seconds; second++) {
    wait(1_000);
    await watch.look();
    expect(watch.areLeasesStale()).toBe(true);
    expect(watch.lapsedBefore()).toBeUndefined();
  }
  wait(1_000);
  expect(watch.areLeasesStale()).toBe(false);
  expect(watch.lapsedBefore()).toBeInstanceOf(Date);
}

test("leases count as stale from 3.3 seconds without the store until fifteen after it is back", async () => {
  const watched = await watching();
  const { watch, wait } = watched;
  await watch.look();
  wait(3_300);
  expect(watch.areLeasesStale()).toBe(false);
  wait(1);
  expect(watch.areLeasesStale()).toBe(true);
  await watch.look();
  await expectStaleFor(15, watched);
});

test("a store that answers every second keeps leases valid", async () => {
  const { watch, wait } = await watching();
  for (let second = 0; second < 30; second++) {
    wait(1_000);
    await watch.look();
    expect(watch.areLeasesStale()).toBe(false);
  }
});

test("a process that may have others beside it waits for them to renew when it first reaches the store", async () => {
  const watched = await watching({ isAlone: false });
  expect(watched.watch.areLeasesStale()).toBe(true);
  await watched.watch.look();
  await expectStaleFor(15, watched);
});

test("a process that is alone does not wait, even if it reaches the store late", async () => {
  const { watch, wait } = await watching({ isAlone: true });
  expect(watch.lapsedBefore()).toBeUndefined();
  wait(60_000);
  await watch.look();
  expect(watch.areLeasesStale()).toBe(false);
  expect(watch.lapsedBefore()).toBeInstanceOf(Date);
});

test("a host that was suspended is a gap, although the clock of the process was stopped", async () => {
  const watched = await watching();
  await watched.watch.look();
  watched.suspend(60_000);
  expect(watched.watch.areLeasesStale()).toBe(true);
  await watched.watch.look();
  await expectStaleFor(15, watched);
});

test("a wall clock that is set back is no gap", async () => {
  const { watch, suspend, wait } = await watching();
  await watch.look();
  suspend(-3_600_000);
  wait(1_000);
  expect(watch.areLeasesStale()).toBe(false);
});

test("a process whose connections are all in use has not lost the store", {
  timeout: 120_000 * SLOWNESS,
}, async () => {
  const control = await startControl();
  onTestFinished(() => control.close());
  const id = await control.createLive();
  const blocker = await control.sql.connect();
  await blocker.query("begin");
  await blocker.query("lock table sessions in access exclusive mode");
  const asked = Array.from({ length: 30 }, () => control.ask(`GET /v1/sessions/${id}`));
  // Longer than the gap after which leases count as stale.
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  await blocker.query("commit");
  blocker.release();
  await Promise.all(asked);
  await control.sql.query(
    `update sessions set op = 'settle', op_id = 'old', op_input = '{}', op_claimed_until = now() - interval '1 s'`,
  );
  // Well before leases count again.
  await eventually(async () => {
    const { rows } = await control.sql.query("select op from sessions");
    expect(rows).toEqual([{ op: null }]);
  }, 12_000);
});
