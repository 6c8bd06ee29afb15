/**
 * Writes all rows of the database as lines of JSON, as of one instant, while the service runs. Every value is in
 * PostgreSQL's own text form, so that it is read back exactly. The form of a dump:
 *
 *   {"schema": 16, "snapshots": [id, …], "volumes": [id, …], "artifacts": [{"prefix", "objects"}, …],
 *    "archives": [{"prefix", "objects"}, …], "imported": […]}
 *                                           the schema's number, and what rows refer to that is not in the database;
 *                                           `archives` are those of the warm tier, `imported` versions of templates
 *                                           of images, by name
 *   {"table": "orgs", "columns": [name, …]}
 *   ["org_…", null, …]                      a row of the table named last, once for each
 *   {"sequences": {name: value, …}}
 *   {"rows": 1234}                          the last line: a dump without it is cut off
 *
 * The first line comes at once: who keeps the files that it names must do so before they are deleted.
 */
import pg from "pg";
import { ownSequenceNames, ownTableNames } from "./own-tables.ts";

/** Rows that are fetched at a time. */
const PAGE = 500;

/** The tables are in an order in which each comes after those that it refers to. */
export async function dumpRows(url: string, write: (line: string) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: url, application_name: "vivarium-backup" });
  await client.connect();
  try {
    await client.query("set timezone = 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'");
    await client.query("set bytea_output = 'hex'; set extra_float_digits = 1");
    await client.query("begin isolation level repeatable read read only");
    const schema = await readSchema(client);
    const [snapshots, volumes] = [await listSnapshots(client), await listVolumes(client)];
    const [artifacts, imported] = [await listArtifacts(client), await listImported(client)];
    const archives = await listLocalArchives(client);
    await write(JSON.stringify({ schema, snapshots, volumes, artifacts, archives, imported }));
    let rows = 0;
    for (const table of await listTables(client)) rows += await dumpTable(client, table, write);
    // Sequences are outside of transactions: their values are those of now, which are never behind the rows.
    await write(JSON.stringify({ sequences: await readSequences(client) }));
    await write(JSON.stringify({ rows }));
  } finally {
    await client.end();
  }
}

async function readSchema(client: pg.Client): Promise<number> {
  if (!(await hasTable(client, "schema_migrations")))
    throw new Error("the database has no schema of this service");
  const { rows } = await client.query("select max(number) as number from schema_migrations");
  return rows[0].number;
}

/** As `findSnapshotsInUse` and the owners of checkpoints and templates have it, without what an operation may make. */
async function listSnapshots(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query(
    `select snapshot_id as id from sessions
       where snapshot_id is not null and state in ('paused', 'lifetime_expired')
     union select id from checkpoints union select id from templates where session_id is not null order by id`,
  );
  // No node has the files of those that are in the object store only.
  const cold = (await hasTable(client, "archives"))
    ? (await client.query("select snapshot_id from archives where is_cold and state = 'complete'")).rows
    : [];
  const away = new Set(cold.map(({ snapshot_id: id }) => id));
  return rows.map(({ id }) => id).filter((id) => !away.has(id));
}

/** Volumes that callers see. A schema of before an update may have none. */
async function listVolumes(client: pg.Client): Promise<string[]> {
  if (!(await hasTable(client, "volumes"))) return [];
  const { rows } = await client.query("select id from volumes where state = 'ready' order by id");
  return rows.map(({ id }) => id);
}

/** Objects that artifacts consist of: the beginning of their keys, and their names below it (`artifacts/pieces.ts`). */
async function listArtifacts(client: pg.Client): Promise<{ prefix: string; objects: string[] }[]> {
  if (!(await hasTable(client, "artifact_files"))) return [];
  const { rows } = await client.query(
    `select org_id || '/artifacts/' || id || '/' as prefix,
         array_agg(distinct encode(substring(pieces from at + 1 for 32), 'hex')) as objects
       from artifacts join artifact_files on artifact_id = id
         cross join generate_series(0, length(pieces) - 1, 32) as at
       where state <> 'failed' group by id, org_id order by id`,
  );
  return rows;
}

/** Objects of the warm tier, by space: of all archives that are complete, as a cold wake needs those below its own, too. */
async function listLocalArchives(client: pg.Client): Promise<{ prefix: string; objects: string[] }[]> {
  if (!(await hasLocalSpaces(client))) return [];
  const { rows } = await client.query(
    `select space.org_id || '/archives/' || space.id || '/' as prefix,
         array_agg(distinct encode(named.name, 'hex')) as objects
       from archive_spaces as space join archives on archives.space_id = space.id
         cross join lateral (select archives.contents as name
           union all
           select substring(archives.chunks from at + 1 for 32)
             from generate_series(0, length(archives.chunks) - 1, 32) as at) as named
       where space.is_local and archives.state = 'complete' group by space.org_id, space.id order by space.id`,
  );
  return rows;
}

/** Templates that a node made of images. Their files can be made again, and are in no backup. */
async function listImported(client: pg.Client): Promise<string[]> {
  if (!(await hasTable(client, "template_builds"))) return [];
  const { rows } = await client.query(
    "select distinct name || '@' || version as name from templates where source_image is not null order by name",
  );
  return rows.map(({ name }) => name);
}

/** A schema of before an update may have none. */
async function hasLocalSpaces(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query(
    `select from information_schema.columns
       where table_schema = 'public' and table_name = 'archive_spaces' and column_name = 'is_local'`,
  );
  return rows.length > 0;
}

async function hasTable(client: pg.Client, name: string): Promise<boolean> {
  const { rows } = await client.query("select to_regclass($1) is not null as known", [name]);
  return rows[0].known;
}

/** Names of our tables, each after those that it refers to. */
export async function listTables(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query(
    `select relname as name, coalesce(array_agg(confrelid::regclass::text) filter (where confrelid is not null), '{}') as refers
       from pg_class left join pg_constraint on conrelid = pg_class.oid and contype = 'f' and confrelid <> conrelid
       where relkind = 'r' and relnamespace = 'public'::regnamespace and relname = any ($1)
       group by relname order by relname`,
    [await ownTableNames()],
  );
  const left = new Map<string, string[]>(rows.map(({ name, refers }) => [name, refers]));
  const sorted: string[] = [];
  while (left.size > 0) {
    const free = [...left].filter(([, refers]) => refers.every((other) => !left.has(other)));
    if (free.length === 0) throw new Error(`tables refer to each other in a circle: ${[...left.keys()]}`);
    for (const [name] of free) left.delete(name);
    sorted.push(...free.map(([name]) => name));
  }
  return sorted;
}

export interface Column {
  name: string;
  type: string;
}

/** Columns of a table that are stored as they are, in their order. */
export async function listColumns(client: pg.Client, table: string): Promise<Column[]> {
  const { rows } = await client.query(
    `select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
       where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`,
    [quoteName(table)],
  );
  return rows;
}

async function dumpTable(
  client: pg.Client,
  table: string,
  write: (line: string) => Promise<void>,
): Promise<number> {
  const columns = (await listColumns(client, table)).map(({ name }) => name);
  await write(JSON.stringify({ table, columns }));
  const texts = columns.map((name) => `${quoteName(name)}::text`).join(", ");
  const order = columns.includes("seq") ? "order by seq" : "";
  await client.query(
    `declare page no scroll cursor for select to_json(array[${texts}])::text as row from ${quoteName(table)} ${order}`,
  );
  let count = 0;
  for (;;) {
    const { rows } = await client.query(`fetch ${PAGE} from page`);
    for (const { row } of rows) await write(row);
    count += rows.length;
    if (rows.length < PAGE) break;
  }
  await client.query("close page");
  return count;
}

async function readSequences(client: pg.Client): Promise<Record<string, string>> {
  const { rows } = await client.query(
    `select sequencename as name, last_value::text as value from pg_sequences
       where schemaname = 'public' and last_value is not null
         and (sequencename = any ($1) or exists (select from pg_depend join pg_class as owner on owner.oid = refobjid
           where objid = format('public.%I', sequencename)::regclass and deptype in ('a', 'i')
             and owner.relname = any ($2) and owner.relnamespace = 'public'::regnamespace))`,
    [await ownSequenceNames(), await ownTableNames()],
  );
  return Object.fromEntries(rows.map(({ name, value }) => [name, value]));
}

export const quoteName = (name: string) => `"${name.replaceAll('"', '""')}"`;
