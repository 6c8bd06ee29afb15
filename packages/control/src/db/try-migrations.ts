/**
 * Tries the migrations that a database lacks, all in one transaction that is rolled back: an update learns that they
 * apply while the release of before serves. That release's queries wait meanwhile for the tables that change, so the
 * transaction itself gives up after a short wait for a lock, and is tried again.
 */
import { sleep } from "@vivarium/kit/clock";
import { messageOf } from "@vivarium/kit/unknown-error";
import pg from "pg";
import { listMigrations, type Migration, readMigration, requireKnown } from "./migrate.ts";

const ATTEMPTS = 5;
const PAUSE_MS = 1_000;
const LOCK_TIMEOUT = "3s";
/** A migration that takes longer than this would block the service as long: the trial then only says so. */
const STATEMENT_TIMEOUT = "60s";
/** SQLSTATEs of a lock that was not free, and of a deadlock with a query of the service. */
const BUSY = ["55P03", "40P01"];

export interface Trial {
  /** Number of the database's schema; 0 without one. */
  schema: number;
  /** Migrations that the next start applies. */
  pending: number[];
  /** Size of the database. */
  bytes: number;
}

/** Throws if the schema is newer than this release, or a migration does not apply. `onlyLook`: none is tried. */
export async function tryMigrations(
  url: string,
  { onlyLook = false }: { onlyLook?: boolean } = {},
): Promise<Trial> {
  const client = new pg.Client({ connectionString: url, application_name: "vivarium-update" });
  await client.connect();
  try {
    const all = await listMigrations();
    const schema = await readSchema(client);
    requireKnown(schema, all);
    const pending = all.filter(({ number }) => number > schema);
    if (schema > 0 && pending.length > 0 && !onlyLook) await tryOften(client, pending);
    const { rows } = await client.query("select pg_database_size(current_database())::text as bytes");
    return { schema, pending: pending.map(({ number }) => number), bytes: Number(rows[0].bytes) };
  } finally {
    await client.end();
  }
}

/** Number of the database's schema; 0 without one. */
export async function readSchema(client: pg.Client): Promise<number> {
  const known = await client.query("select to_regclass('schema_migrations') is not null as known");
  if (!known.rows[0].known) return 0;
  const { rows } = await client.query("select coalesce(max(number), 0) as number from schema_migrations");
  return rows[0].number;
}

async function tryOften(client: pg.Client, pending: readonly Migration[]): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const failure = await tryOnce(client, pending);
    if (!failure) return;
    const isBusy = BUSY.includes((failure.cause as { code?: string }).code ?? "");
    if (!isBusy || attempt >= ATTEMPTS) throw failure;
    await sleep(PAUSE_MS);
  }
}

async function tryOnce(client: pg.Client, pending: readonly Migration[]): Promise<Error | undefined> {
  await client.query("begin");
  try {
    await client.query(
      `set local lock_timeout = '${LOCK_TIMEOUT}'; set local statement_timeout = '${STATEMENT_TIMEOUT}'`,
    );
    for (const migration of pending) {
      const failure = await apply(client, migration);
      if (failure) return failure;
    }
    return undefined;
  } finally {
    await client.query("rollback");
  }
}

async function apply(client: pg.Client, migration: Migration): Promise<Error | undefined> {
  try {
    await client.query(await readMigration(migration));
    return undefined;
  } catch (cause) {
    return new Error(`the migration ${migration.name} does not apply: ${messageOf(cause)}`, { cause });
  }
}
