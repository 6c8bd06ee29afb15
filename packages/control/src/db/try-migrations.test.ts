import pg from "pg";
import { expect, test } from "vitest";
import { createDatabase, createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { listMigrations, migrate } from "./migrate.ts";
import { openDatabase } from "./pool.ts";
import { tryMigrations } from "./try-migrations.ts";

async function databaseOfSchema(upTo: number): Promise<string> {
  const url = await createEmptyDatabase();
  const db = openDatabase({ url, log: silentLog });
  await migrate(db, { upTo }).finally(() => db.destroy());
  return url;
}

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(text).finally(() => client.end());
  return rows;
}

const COLUMNS =
  "select table_name, column_name from information_schema.columns where table_schema = 'public'";

test("pending migrations are tried, and the database is as before", async () => {
  const url = await databaseOfSchema(14);
  const before = await query(url, COLUMNS);
  const { schema, pending, bytes } = await tryMigrations(url);
  const newest = (await listMigrations()).length;
  expect(schema).toBe(14);
  expect(pending).toEqual(Array.from({ length: newest - 14 }, (_, index) => index + 15));
  expect(bytes).toBeGreaterThan(0);
  expect(await query(url, COLUMNS)).toEqual(before);
});

test("a migration that does not apply is named, and the database is as before", async () => {
  const url = await databaseOfSchema(16);
  await query(url, "alter table sessions add column isolation text");
  const before = await query(url, COLUMNS);
  await expect(tryMigrations(url)).rejects.toThrow(/0017_isolation\.sql does not apply: .*already exists/);
  expect(await query(url, COLUMNS)).toEqual(before);
});

test("a table that the service uses is waited for", async () => {
  const url = await databaseOfSchema(16);
  const service = new pg.Client({ connectionString: url });
  await service.connect();
  await service.query("begin; lock table sessions in access share mode");
  const tried = tryMigrations(url);
  const waiting = async () =>
    (await query(url, "select from pg_locks where not granted and relation = 'sessions'::regclass")).length;
  await expect.poll(waiting).toBe(1);
  await service.query("commit");
  expect((await tried).pending[0]).toBe(17);
  await service.end();
});

test("a database without a schema has nothing to try, and one with a newer schema is refused", async () => {
  expect((await tryMigrations(await createEmptyDatabase())).schema).toBe(0);
  const url = await createDatabase();
  expect((await tryMigrations(url)).pending).toEqual([]);
  await query(url, "insert into schema_migrations (number, name) values (9999, 'x')");
  await expect(tryMigrations(url)).rejects.toThrow("has schema 9999");
});
