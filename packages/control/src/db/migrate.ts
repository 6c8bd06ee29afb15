/** Applies the migrations of this release to the database, each in its own transaction. */
import { readdir, readFile } from "node:fs/promises";
import { sql } from "kysely";
import type pg from "pg";
import type { Database } from "./pool.ts";

const MIGRATIONS = new URL("./migrations/", import.meta.url);
const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;
/** Advisory lock that is held while the schema changes, so that instances migrate one at a time. */
const MIGRATION_LOCK = 7_483_920_117;

/**
 * Brings the schema up to the newest migration of this release, or to that of `upTo`. Refuses a schema that is newer than
 * the release. `beforeChange` is awaited before the first migration of a database that was in use before.
 */
export async function migrate(
  db: Database,
  {
    upTo = Number.POSITIVE_INFINITY,
    beforeChange,
  }: { upTo?: number; beforeChange?: (schema: number) => Promise<void> } = {},
): Promise<number[]> {
  const all = await listMigrations();
  await createMigrationTable(db);
  const applied = await db
    .selectNoFrom(sql<number>`(select coalesce(max(number), 0) from schema_migrations)`.as("number"))
    .executeTakeFirstOrThrow();
  requireKnown(applied.number, all);
  const pending = all.filter(({ number }) => number > applied.number && number <= upTo);
  if (pending.length > 0 && applied.number > 0 && (await wasInUse(db))) await beforeChange?.(applied.number);
  const done: number[] = [];
  for (const { number, name } of pending) if (await applyMigration(db, number, name)) done.push(number);
  return done;
}

/** False for a fresh database that another instance brings up to date at the same time. */
async function wasInUse(db: Database): Promise<boolean> {
  const row = await db.selectFrom("installation").select("only_row").executeTakeFirst();
  return row !== undefined;
}

export interface Migration {
  number: number;
  /** Name of its file. */
  name: string;
}

export async function listMigrations(): Promise<Migration[]> {
  const names = (await readdir(MIGRATIONS)).filter((name) => FILE_NAME.test(name)).sort();
  return names.map((name) => ({ number: Number(name.slice(0, 4)), name }));
}

export function readMigration({ name }: Migration): Promise<string> {
  return readFile(new URL(name, MIGRATIONS), "utf8");
}

/** Refuses a schema that is newer than the migrations of this release. */
export function requireKnown(schema: number, migrations: readonly Migration[]): void {
  const newest = migrations.at(-1)?.number ?? 0;
  if (schema <= newest) return;
  throw new Error(
    `the database has schema ${schema}, this release knows ${newest}: install the newer release again, ` +
      "put back the rows of before its update (docs/operate/update.md), or point DATABASE_URL at another database",
  );
}

/** The table in which a database keeps the migrations that it has. */
export const MIGRATION_TABLE = `create table if not exists schema_migrations (
  number integer primary key,
  name text not null,
  applied_at timestamptz not null default now()
)`;

/** Until the transaction of this client ends, nobody else changes the schema, and no control starts on it. */
export async function lockSchema(client: pg.Client): Promise<void> {
  await client.query("select pg_advisory_xact_lock($1)", [MIGRATION_LOCK]);
}

async function createMigrationTable(db: Database): Promise<void> {
  await db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${MIGRATION_LOCK})`.execute(tx);
    await sql.raw(MIGRATION_TABLE).execute(tx);
  });
}

/** Claims the number in the transaction that changes the schema. False when another instance has applied it. */
async function applyMigration(db: Database, number: number, name: string): Promise<boolean> {
  const text = await readMigration({ number, name });
  return await db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${MIGRATION_LOCK})`.execute(tx);
    const claimed = await sql`insert into schema_migrations (number, name) values (${number}, ${name})
      on conflict do nothing returning number`.execute(tx);
    if (claimed.rows.length === 0) return false;
    await sql.raw(text).execute(tx);
    return true;
  });
}
