/** Opens the pool of connections to the database. */
import type { Log } from "@vivarium/kit/log";
import { Kysely, PostgresDialect, type Transaction } from "kysely";
import pg from "pg";
import type { Tables } from "./tables.ts";

export type Database = Kysely<Tables>;
/** Runs queries: the pool, or a transaction. */
export type Queries = Database | Transaction<Tables>;

const INT8 = 20;
/** Parses 64-bit integers as numbers: all our columns hold less than 2^53. */
const types = {
  getTypeParser: (oid: number, format?: "text" | "binary") =>
    oid === INT8 ? Number : pg.types.getTypeParser(oid, format as "text"),
} as pg.CustomTypesConfig;

/** A pool that survives restarts of the server: broken connections are dropped, and the next query opens a new one. */
export function openDatabase({
  url,
  log,
  connections = 20,
}: {
  url: string;
  log: Log;
  connections?: number;
}): Database {
  const pool = new pg.Pool({
    connectionString: url,
    types,
    max: connections,
    connectionTimeoutMillis: 3_000,
    statement_timeout: 15_000,
    idle_in_transaction_session_timeout: 15_000,
    keepAlive: true,
    application_name: "vivarium-control",
  });
  pool.on("error", (err) => log.warn({ err }, "an idle database connection broke"));
  pool.on("connect", (client) => {
    client.on("error", (err) => log.debug({ err }, "a database connection broke"));
  });
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
}
