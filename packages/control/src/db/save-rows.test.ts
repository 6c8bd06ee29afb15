import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { loadRows } from "./load-rows.ts";
import { migrate } from "./migrate.ts";
import { openDatabase } from "./pool.ts";
import { saveRows } from "./save-rows.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "viv-rows-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** A database that was in use, if it has a schema. */
async function databaseOfSchema(upTo: number) {
  const url = await createEmptyDatabase();
  const db = openDatabase({ url, log: silentLog });
  await migrate(db, { upTo });
  if (upTo > 0)
    await db
      .insertInto("installation")
      .values({ pepper_check: Buffer.of(1) })
      .execute();
  return { url, db };
}

test("rows that were saved before a migration load into a database of the schema of before", async () => {
  const { url, db } = await databaseOfSchema(3);
  await db.insertInto("orgs").values({ id: "org_a", name: "a", concurrent_sessions: 1 }).execute();
  const saved: string[] = [];
  const beforeChange = async (schema: number) => void saved.push(await saveRows(url, dir, schema));
  await migrate(db, { beforeChange });
  await db.destroy();
  expect(saved).toEqual([expect.stringMatching(/\/rows-0003-\d{8}T\d{9}\.jsonl$/)]);
  const lines = (await readFile(saved[0] ?? "", "utf8")).split("\n");
  const loaded = await loadRows(
    { url, keepAside: "update" },
    (async function* () {
      yield* lines;
    })(),
  );
  expect(loaded).toEqual({ rows: 2, aside: expect.stringMatching(/^before_update_/) });
  const again = openDatabase({ url, log: silentLog });
  expect((await migrate(again))[0]).toBe(4);
  expect(await again.selectFrom("orgs").select("id").execute()).toEqual([{ id: "org_a" }]);
  await again.destroy();
});

test("nothing is saved of a database without a schema, or where no migration is pending", async () => {
  const { db } = await databaseOfSchema(0);
  const beforeChange = async () => {
    throw new Error("saved");
  };
  await migrate(db, { beforeChange });
  expect(await migrate(db, { beforeChange })).toEqual([]);
  await db.destroy();
});

test("nothing is saved of a fresh database that another process brings up to date at the same time", async () => {
  const { db } = await databaseOfSchema(3);
  await db.deleteFrom("installation").execute();
  const beforeChange = async () => {
    throw new Error("saved");
  };
  expect((await migrate(db, { beforeChange }))[0]).toBe(4);
  await db.destroy();
});

test("rows that cannot be saved leave the schema as it was", async () => {
  const { url, db } = await databaseOfSchema(3);
  const beforeChange = async (schema: number) => void (await saveRows(url, path.join(dir, "absent"), schema));
  await expect(migrate(db, { beforeChange })).rejects.toThrow(/cannot be saved .* Nothing was changed/);
  expect((await migrate(db))[0]).toBe(4);
  await db.destroy();
});

test("the newest of each of the last two schemas are kept, and what a killed save left is removed", async () => {
  const { url, db } = await databaseOfSchema(3);
  await db.destroy();
  const kept = ["pepper", "rows-0004-20270105T000000000.jsonl"];
  const older = [
    "rows-0003-20270103T000000000.jsonl",
    "rows-0004-20270102T000000000.jsonl",
    "rows-0005-20270101T000000000.jsonl",
    "rows-0002-20270102T000000000.jsonl.tmp",
  ];
  for (const name of [...kept, ...older]) await writeFile(path.join(dir, name), "");
  vi.useFakeTimers({ toFake: ["Date"], now: new Date("2027-03-01T09:30:00.123Z") });
  const file = await saveRows(url, dir, 3).finally(() => vi.useRealTimers());
  expect(path.basename(file)).toBe("rows-0003-20270301T093000123.jsonl");
  expect((await readdir(dir)).toSorted()).toEqual([...kept, path.basename(file)].toSorted());
});
