/** Prints the schema as text, from the system catalog: tables with their columns and constraints, then indexes. */
import type { Log } from "@vivarium/kit/log";
import { sql } from "kysely";
import { migrate } from "./migrate.ts";
import { type Database, openDatabase } from "./pool.ts";

const HEAD = "-- Made by `npm run schema` from the migrations. Do not edit.\n";

/** Migrates the empty database and describes the result. */
export async function dumpSchema(url: string, log: Log): Promise<string> {
  const db = openDatabase({ url, log });
  try {
    await migrate(db);
    const tables = await listTables(db);
    const parts = await Promise.all(tables.map((table) => dumpTable(db, table)));
    return [HEAD, ...parts].join("\n");
  } finally {
    await db.destroy();
  }
}

async function listTables(db: Database): Promise<string[]> {
  const found = await sql<{ name: string }>`
    select relname as name from pg_class
    where relkind = 'r' and relnamespace = 'public'::regnamespace order by relname`.execute(db);
  return found.rows.map((row) => row.name);
}

async function dumpTable(db: Database, table: string): Promise<string> {
  const columns = await sql<{ line: string }>`
    select attname || ' ' || format_type(atttypid, atttypmod)
      || case when attnotnull then ' not null' else '' end
      || coalesce(' default ' || pg_get_expr(adbin, adrelid), '') as line
    from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
    where attrelid = ${table}::regclass and attnum > 0 and not attisdropped order by attnum`.execute(db);
  const constraints = await sql<{ line: string }>`
    select 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) as line
    from pg_constraint where conrelid = ${table}::regclass and contype <> 'n' order by conname`.execute(db);
  const indexes = await sql<{ line: string }>`
    select pg_get_indexdef(indexrelid) || ';' as line from pg_index
    where indrelid = ${table}::regclass
      and not exists (select from pg_constraint where conindid = indexrelid and contype in ('p', 'u'))
    order by line`.execute(db);
  const lines = [...columns.rows, ...constraints.rows].map(({ line }) => `  ${line}`);
  return [
    `create table ${table} (`,
    lines.join(",\n"),
    ");",
    ...indexes.rows.map(({ line }) => line),
    "",
  ].join("\n");
}
