/** Databases for tests, on one server per test run: cloned from a database that was migrated once, or empty. */
import { randomId } from "@vivarium/kit/id";
import pg from "pg";
import { inject } from "vitest";
import { migrate } from "../src/db/migrate.ts";
import { openDatabase } from "../src/db/pool.ts";
import { JOB_KINDS } from "../src/jobs/kinds.ts";
import { JobQueue } from "../src/jobs/queue.ts";
import { silentLog } from "./silent-log.ts";

export { silentLog };

const TEMPLATE = "migrated";
/** Advisory lock: test files start at the same time, and the first one makes the template for all. */
const TEMPLATE_LOCK = 7_483_920_200;

/** A database with the newest schema and no rows. */
export async function createDatabase(): Promise<string> {
  return await withServer(async (server) => {
    await makeTemplate(server);
    return await create(server, `template ${TEMPLATE}`);
  });
}

/** A database without a schema. */
export async function createEmptyDatabase(): Promise<string> {
  return await withServer((server) => create(server, ""));
}

async function create(server: pg.Client, how: string): Promise<string> {
  const name = `test_${randomId(12)}`;
  await server.query(`create database ${name} ${how}`);
  return urlOf(name);
}

/** Makes the template once. A database of its name that is not marked as a template comes from an interrupted run. */
async function makeTemplate(server: pg.Client): Promise<void> {
  await server.query("select pg_advisory_lock($1)", [TEMPLATE_LOCK]);
  const found = await server.query("select from pg_database where datname = $1 and datistemplate", [
    TEMPLATE,
  ]);
  if (found.rowCount === 0) {
    await server.query(`drop database if exists ${TEMPLATE}`);
    await server.query(`create database ${TEMPLATE}`);
    const db = openDatabase({ url: urlOf(TEMPLATE), log: silentLog });
    await migrate(db);
    // Made once here, since every control plane of a test would make it otherwise.
    const jobs = new JobQueue({ url: urlOf(TEMPLATE), db, log: silentLog, kinds: JOB_KINDS });
    await jobs.open().finally(() => jobs.stop());
    await db.destroy();
    await server.query(`alter database ${TEMPLATE} is_template true`);
  }
  await server.query("select pg_advisory_unlock($1)", [TEMPLATE_LOCK]);
}

async function withServer<T>(work: (server: pg.Client) => Promise<T>): Promise<T> {
  const server = new pg.Client({ connectionString: urlOf("postgres") });
  await server.connect();
  return await work(server).finally(() => server.end());
}

function urlOf(database: string): string {
  return `postgresql://postgres@localhost/${database}?host=${encodeURIComponent(inject("postgresFolder"))}`;
}
