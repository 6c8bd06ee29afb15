/** Distinguishes the tables that the migrations of this service make from those of another application in the same schema. */
import type pg from "pg";
import { listMigrations, readMigration } from "./migrate.ts";

/** Names of the tables that any migration makes. */
export const ownTableNames = () => namesOf(/^\s*create table (\w+)/gm);

/** Names of the sequences that migrations make for themselves, of no table. */
export const ownSequenceNames = () => namesOf(/^\s*create sequence (\w+)/gm);

async function namesOf(statement: RegExp): Promise<string[]> {
  const texts = await Promise.all((await listMigrations()).map(readMigration));
  return texts.flatMap((text) => [...text.matchAll(statement)].map(([, name = ""]) => name));
}

/**
 * Whether the schema `public` was made by this service. A table `schema_migrations` alone does not say so: other
 * programs have one too, with other columns.
 */
export async function hasOwnSchema(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query(
    `select attname as name from pg_attribute
       where attrelid = to_regclass('public.schema_migrations') and attnum > 0 and not attisdropped`,
  );
  const present = rows.map(({ name }) => name);
  return ["number", "name", "applied_at"].every((name) => present.includes(name));
}

/** Tables and views of the schema `public` that are neither this service's nor made by an extension of PostgreSQL. */
export async function listForeignTables(client: pg.Client): Promise<string[]> {
  const own = (await hasOwnSchema(client)) ? ["schema_migrations", ...(await ownTableNames())] : [];
  const { rows } = await client.query(
    `select relname as name from pg_class
       where relkind in ('r', 'p', 'f', 'v', 'm') and relnamespace = to_regnamespace('public') and relname <> all ($1)
         and not exists (select from pg_depend
           where classid = 'pg_class'::regclass and objid = pg_class.oid and deptype = 'e')
       order by relname`,
    [own],
  );
  return rows.map(({ name }) => name);
}
