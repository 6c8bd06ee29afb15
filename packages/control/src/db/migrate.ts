/** Applies the migrations of this release to the database, each in its own transaction. */
import { readdir, readFile } from "node:fs/promises";
import { sql } from "kysely";
import type { Database } from "./pool.ts";

const MIGRATIONS = new URL("./migrations/", import.meta.url);
const FILE_NAME = /^(\d{4})_[a-z0-9_]+\.sql$/;
/** Advisory lock that is held while the schema changes, so that instances migrate one at a time. */
const MIGRATION_LOCK = 7_483_920_117;

/** Brings the schema up to the newest migration of this release. Refuses a schema that is newer than the release. */
export async function migrate(db: Database): Promise<number[]> {
  const files = await listMigrations();
  await createMigrationTable(db);
  const newest = files.at(-1)?.number ?? 0;
  const applied = await db
    .selectNoFrom(sql<number>`(select coalesce(max(number), 0) from schema_migrations)`.as("number"))
    .executeTakeFirstOrThrow();
  if (applied.number > newest) {
    throw new Error(
      `the database has schema ${applied.number}, this release knows ${newest}: install the newer release again, ` +
        "or point DATABASE_URL at another database",
    );
  }
  const done: number[] = [];
  for (const { number, name } of files)
    if (number > applied.number && (await applyMigration(db, number, name))) done.push(number);
  return done;
}

async function listMigrations(): Promise<{ number: number; name: string }[]> {
  const names = (await readdir(MIGRATIONS)).filter((name) => FILE_NAME.test(name)).sort();
  return names.map((name) => ({ number: Number(name.slice(0, 4)), name }));
}

async function createMigrationTable(db: Database): Promise<void> {
  await db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${MIGRATION_LOCK})`.execute(tx);
    await sql`create table if not exists schema_migrations (
      number integer primary key,
      name text not null,
      applied_at timestamptz not null default now()
    )`.execute(tx);
  });
}

/** Claims the number in the transaction that changes the schema. False when another instance has applied it. */
async function applyMigration(db: Database, number: number, name: string): Promise<boolean> {
  const text = await readFile(new URL(name, MIGRATIONS), "utf8");
  return await db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${MIGRATION_LOCK})`.execute(tx);
    const claimed = await sql`insert into schema_migrations (number, name) values (${number}, ${name})
      on conflict do nothing returning number`.execute(tx);
    if (claimed.rows.length === 0) return false;
    await sql.raw(text).execute(tx);
    return true;
  });
}
