import { readdirSync } from "node:fs";
import { sql } from "kysely";
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

test("a ceiling that an operator wrote into the database stays, and the default becomes the service's", async () => {
  const db = openDatabase({ url: await createEmptyDatabase(), log: silentLog });
  await migrate(db, { upTo: 21 });
  for (const [id, ceiling] of Object.entries({ org_default: 10, org_raised: 60, org_shut: 0 }))
    await sql`insert into orgs (id, name, concurrent_sessions) values (${id}, 'o', ${ceiling})`.execute(db);
  await migrate(db);
  const orgs = await db.selectFrom("orgs").select(["id", "concurrent_sessions"]).orderBy("id").execute();
  expect(orgs.map((org) => [org.id, org.concurrent_sessions])).toEqual([
    ["org_default", null],
    ["org_raised", 60],
    ["org_shut", 0],
  ]);
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
