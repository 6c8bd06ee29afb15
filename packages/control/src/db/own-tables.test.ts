import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";
import { migrate } from "./migrate.ts";
import { requireOwnOrEmptyDatabase } from "./own-tables.ts";
import { openDatabase } from "./pool.ts";

async function databaseWith(...statements: string[]): Promise<{ url: string; client: pg.Client }> {
  const url = await createEmptyDatabase();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  for (const statement of statements) await client.query(statement);
  return { url, client };
}

test("a database that has only tables of another application is refused, with their names and the way out", async () => {
  const { url } = await databaseWith("create table orders (id integer)", "create view late as select 1");
  await expect(requireOwnOrEmptyDatabase(url)).rejects.toThrow(
    /has 2 tables of another application \(late, orders\) .* Make a database for this service alone/,
  );
});

test("an empty database is taken, and one of ours also when others have put tables beside", async () => {
  const { url, client } = await databaseWith();
  await requireOwnOrEmptyDatabase(url);
  const db = openDatabase({ url, log: silentLog });
  await migrate(db).finally(() => db.destroy());
  await client.query("create table orders (id integer)");
  await requireOwnOrEmptyDatabase(url);
});

test("a database with tables of others is taken where ours have a schema of their own", async () => {
  const { url } = await databaseWith("create table orders (id integer)", "create schema ours");
  await requireOwnOrEmptyDatabase(`${url}${url.includes("?") ? "&" : "?"}options=-csearch_path%3Dours`);
  await expect(requireOwnOrEmptyDatabase(url)).rejects.toThrow("orders");
});

test("control starts on no database of another application: it makes no table and no key", async () => {
  const { url, client } = await databaseWith("create table orders (id integer)");
  const controlDir = mkdtempSync(path.join(tmpdir(), "control-"));
  onTestFinished(() => rmSync(controlDir, { recursive: true }));
  const settings = { databaseUrl: url, nodeSocket: path.join(controlDir, "none.sock"), controlDir };
  await expect(createApp(settings, silentLog)).rejects.toThrow("another application (orders)");
  const { rows } = await client.query(
    "select count(*)::int as count from pg_tables where schemaname = 'public'",
  );
  expect(rows[0].count).toBe(1);
  expect(readdirSync(controlDir)).not.toContain("bootstrap.key");
});
