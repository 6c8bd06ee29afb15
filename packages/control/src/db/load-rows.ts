/** Loads a dump (`dump-rows.ts`) into an empty database, or one of this service: all of it or nothing. */
import { messageOf } from "@vivarium/kit/unknown-error";
import pg from "pg";
import { type Column, listColumns, listTables, quoteName } from "./dump-rows.ts";
import { listMigrations, lockSchema, MIGRATION_TABLE, readMigration } from "./migrate.ts";
import { hasOwnSchema, listForeignTables, refusalOfForeign } from "./own-tables.ts";
import { readSchema } from "./try-migrations.ts";

/** Rows and characters of one insert, at most. */
const PAGE = { rows: 500, chars: 1024 * 1024 };

/** Classes of SQLSTATE of a server that goes down, or fails itself: its answer says nothing of the transaction. */
const CONNECTION_LOST = /^(|08.*|57.*|58.*|XX.*)$/;

interface LoadOptions {
  url: string;
  /** A database that has our tables is not refused: its schema is renamed, and stays, with this in its name. */
  keepAside?: "restore" | "update" | undefined;
  unlessSchemaIs?: number | undefined;
}

interface Loaded {
  /** Absent: the database was left as it is. */
  rows?: number;
  /** Name that the schema of before has now; of a database that was left as it is, the newest such schema. */
  aside?: string;
}

/** Throws if a load would be refused. Nothing is changed. */
export async function checkLoad({ url, keepAside }: LoadOptions): Promise<void> {
  const client = new pg.Client({ connectionString: url, application_name: "vivarium-restore" });
  await client.connect();
  await requireOwnOrEmpty(client, keepAside).finally(() => client.end());
}

/**
 * Makes the schema of the dump and fills it, in one transaction: at a death of any process the database has all of it or is
 * as it was. With `unlessSchemaIs` of the database's schema nothing is changed.
 */
export async function loadRows(
  { url, keepAside, unlessSchemaIs }: LoadOptions,
  lines: AsyncIterable<string>,
): Promise<Loaded> {
  const dump = lines[Symbol.asyncIterator]();
  const head = JSON.parse((await dump.next()).value ?? "null") as { schema: number } | null;
  if (typeof head?.schema !== "number") throw new Error("this is no dump of the database: it has no head");
  const client = new pg.Client({ connectionString: url, application_name: "vivarium-restore" });
  // A connection that is lost fails the query at work as well, which is where it counts.
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query("begin");
    // Also on a server whose commits may be lost with its power.
    await client.query("set local synchronous_commit = on");
    await lockSchema(client);
    if (unlessSchemaIs !== undefined && (await readSchema(client)) === unlessSchemaIs)
      return await findNewestAside(client);
    const aside = await moveOldAside(client, keepAside);
    await makeSchema(client, head.schema);
    const rows = await new Loader(client).load(dump);
    if (keepAside === "update") await dropEarlier(client, aside);
    await commit(client);
    await writeCheckpoint(client);
    return { rows, ...(aside !== undefined && { aside }) };
  } finally {
    // Without a commit the server rolls everything back.
    await client.end().catch(() => {});
  }
}

/** Whether the rows are in is not known when this fails: the server may have committed before its answer was lost. */
async function commit(client: pg.Client): Promise<void> {
  await client.query("commit").catch((cause: unknown) => {
    if (cause instanceof pg.DatabaseError && !CONNECTION_LOST.test(cause.code ?? "")) throw cause;
    throw new UncertainLoad(`the database did not say whether it has the rows: ${messageOf(cause)}`, {
      cause,
    });
  });
}

/** A load of which nobody knows whether it took place. */
export class UncertainLoad extends Error {}

/** Writes the tables themselves, besides the log of them. Not everybody may: the log alone is enough for the rows. */
async function writeCheckpoint(client: pg.Client): Promise<void> {
  await client.query("checkpoint").catch(() => {});
}

/** All migrations up to a number, where there are no tables. */
async function makeSchema(client: pg.Client, schema: number): Promise<void> {
  const all = await listMigrations();
  const newest = all.at(-1)?.number;
  if (!all.some(({ number }) => number === schema))
    throw new Error(`the dump has schema ${schema}, this release knows ${newest}`);
  await client.query(MIGRATION_TABLE);
  for (const migration of all.filter(({ number }) => number <= schema)) {
    const { number, name } = migration;
    await client.query("insert into schema_migrations (number, name) values ($1, $2)", [number, name]);
    await client.query(await readMigration(migration));
  }
}

/** Failed updates that are tried again and again must not fill the disk: only the last one's tables are kept. */
async function dropEarlier(client: pg.Client, kept = ""): Promise<void> {
  const { rows } = await client.query(
    "select nspname as name from pg_namespace where nspname ~ '^(before|failed)_update_' and nspname <> $1",
    [kept],
  );
  for (const { name } of rows) await client.query(`drop schema ${quoteName(name)} cascade`);
}

/**
 * The whole schema `public` is filled, and before that renamed where it is not empty: tables of another application would
 * be lost to it. Only an update that is taken back does not stop at such a table, since it must not leave the service down.
 */
async function requireOwnOrEmpty(
  client: pg.Client,
  keepAside: LoadOptions["keepAside"],
): Promise<{ isOwn: boolean }> {
  const isOwn = await hasOwnSchema(client);
  const foreign = isOwn && keepAside === "update" ? [] : await listForeignTables(client);
  if (foreign.length > 0) throw new Error(await refusalOfForeign(client, foreign, isOwn));
  if (isOwn && !keepAside) throw new Error("the database has tables of this service already");
  return { isOwn };
}

/** Our tables must not be there yet. */
async function moveOldAside(
  client: pg.Client,
  keepAside: LoadOptions["keepAside"],
): Promise<string | undefined> {
  const { isOwn } = await requireOwnOrEmpty(client, keepAside);
  if (!isOwn) return undefined;
  const aside = `before_${keepAside}_${new Date().toISOString().replaceAll(/\D/g, "").slice(0, 14)}`;
  await client.query(`alter schema public rename to ${aside}`);
  await client.query("create schema public");
  return aside;
}

async function findNewestAside(client: pg.Client): Promise<{ aside?: string }> {
  const { rows } = await client.query(
    "select nspname as aside from pg_namespace where nspname ~ '^before_[a-z]+_[0-9]{14}$' order by right(nspname, 14) desc limit 1",
  );
  return rows[0] ?? {};
}

/** Reads the lines of one dump, and inserts rows a page at a time. */
class Loader {
  readonly #client: pg.Client;
  #table: { name: string; columns: Column[] } | undefined;
  #page: string[] = [];
  #chars = 0;
  #rows = 0;

  constructor(client: pg.Client) {
    this.#client = client;
  }

  async load(lines: AsyncIterator<string>): Promise<number> {
    const tables = await listTables(this.#client);
    // Migrations may have inserted rows that the dump has too.
    await this.#client.query(`truncate ${tables.map(quoteName).join(", ")}`);
    for (let next = await lines.next(); !next.done; next = await lines.next()) {
      const line = next.value;
      if (line.startsWith("[")) await this.#addRow(line);
      else if (line !== "" && (await this.#obey(JSON.parse(line)))) return this.#rows;
    }
    throw new Error("the dump is cut off: its last line is missing");
  }

  /** Returns whether this was the last line. */
  async #obey(line: {
    table?: string;
    columns?: string[];
    sequences?: Record<string, string>;
    rows?: number;
  }): Promise<boolean> {
    await this.#insertPage();
    if (line.table !== undefined) await this.#begin(line.table, line.columns ?? []);
    for (const [name, value] of Object.entries(line.sequences ?? {}))
      await this.#client.query("select setval($1::regclass, $2)", [quoteName(name), value]);
    if (line.rows === undefined) return false;
    if (line.rows === this.#rows) return true;
    throw new Error(`the dump has ${this.#rows} rows of ${line.rows}`);
  }

  async #begin(name: string, columns: string[]): Promise<void> {
    const present = await listColumns(this.#client, name);
    const missing = columns.filter((column) => !present.some((one) => one.name === column));
    if (missing.length > 0) throw new Error(`the table ${name} has no column ${missing.join(", ")}`);
    const typeOf = new Map(present.map((column) => [column.name, column.type]));
    this.#table = {
      name,
      columns: columns.map((column) => ({ name: column, type: typeOf.get(column) ?? "" })),
    };
  }

  async #addRow(line: string): Promise<void> {
    if (!this.#table) throw new Error("the dump has a row before its first table");
    this.#page.push(line);
    this.#chars += line.length;
    this.#rows++;
    if (this.#page.length >= PAGE.rows || this.#chars >= PAGE.chars) await this.#insertPage();
  }

  async #insertPage(): Promise<void> {
    if (!this.#table || this.#page.length === 0) return;
    const { name, columns } = this.#table;
    const names = columns.map((column) => quoteName(column.name)).join(", ");
    const values = columns.map(({ type }, index) => `(line ->> ${index})::${type}`).join(", ");
    await this.#client.query(
      `insert into ${quoteName(name)} (${names}) overriding system value
         select ${values} from jsonb_array_elements($1::jsonb) as line`,
      [`[${this.#page.join(",")}]`],
    );
    this.#page = [];
    this.#chars = 0;
  }
}
