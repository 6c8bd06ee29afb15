import { expect, test } from "vitest";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import type { Database } from "./pool.ts";
import { openDatabase } from "./pool.ts";
import { StoreWatch } from "./store-watch.ts";

async function watching(
  steps: (watch: StoreWatch, wait: (ms: number) => void) => Promise<void>,
): Promise<void> {
  const db: Database = openDatabase({ url: await createDatabase(), log: silentLog });
  let now = 0;
  const wait = (ms: number) => {
    now += ms;
  };
  await steps(new StoreWatch({ db, now: () => now }), wait);
  await db.destroy();
}

test("leases count as stale from four seconds without the store until fifteen after it is back", async () => {
  await watching(async (watch, wait) => {
    await watch.look();
    wait(4_000);
    expect(watch.areLeasesStale()).toBe(false);
    wait(1);
    expect(watch.areLeasesStale()).toBe(true);
    await watch.look();
    for (let second = 1; second < 15; second++) {
      wait(1_000);
      await watch.look();
      expect(watch.areLeasesStale()).toBe(true);
    }
    wait(1_000);
    expect(watch.areLeasesStale()).toBe(false);
  });
});

test("a store that answers every second lets leases mean what they say", async () => {
  await watching(async (watch, wait) => {
    for (let second = 0; second < 30; second++) {
      wait(1_000);
      await watch.look();
      expect(watch.areLeasesStale()).toBe(false);
    }
  });
});
