import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { createDatabase, createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { migrate } from "./migrate.ts";
import { openDatabase } from "./pool.ts";

const files = readdirSync(new URL("./migrations/", import.meta.url)).sort();

test("migrations are numbered without gaps", () => {
  expect(files.map((name) => Number(name.slice(0, 4)))).toEqual(files.map((_, index) => index + 1));
});

test("instances that start together apply each migration once", async () => {
  const url = await createEmptyDatabase();
  const pools = Array.from({ length: 4 }, () => openDatabase({ url, log: silentLog }));
  const applied = await Promise.all(pools.map((pool) => migrate(pool)));
  expect(applied.flat().toSorted((a, b) => a - b)).toEqual(files.map((_, index) => index + 1));
  expect(await migrate(pools[0] as (typeof pools)[0])).toEqual([]);
  await Promise.all(pools.map((pool) => pool.destroy()));
});

test("a schema can be brought to an earlier migration, and later to the newest", async () => {
  const db = openDatabase({ url: await createEmptyDatabase(), log: silentLog });
  expect(await migrate(db, { upTo: 3 })).toEqual([1, 2, 3]);
  expect(await migrate(db)).toEqual(files.slice(3).map((_, index) => index + 4));
  await db.destroy();
});

test("a schema that is newer than the release is refused with the way out", async () => {
  const db = openDatabase({ url: await createDatabase(), log: silentLog });
  await db
    .insertInto("schema_migrations" as "orgs")
    .values({ number: 9999, name: "x" } as never)
    .execute();
  await expect(migrate(db)).rejects.toThrow(
    /has schema 9999, this release knows \d+: install the newer release/,
  );
  await db.destroy();
});
