/** Distinguishes the tables that the migrations of this service make from those of another application in the same schema. */
import pg from "pg";
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

/**
 * Throws if the schema `public` has tables of another application, and none of this service: no table of ours is made
 * among them because a `DATABASE_URL` was mistaken.
 */
export async function requireOwnOrEmptyDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, application_name: "vivarium-control" });
  await client.connect();
  try {
    // One snapshot: another instance may make our tables at this moment.
    await client.query("begin isolation level repeatable read read only");
    // With another search path our tables are made elsewhere.
    const { rows } = await client.query("select current_schema() as name");
    if (rows[0].name !== "public" || (await hasOwnSchema(client))) return;
    const foreign = await listForeignTables(client);
    if (foreign.length > 0) throw new Error(await refusalOfForeign(client, foreign, false));
  } finally {
    await client.end();
  }
}

/** The reason why a database with tables of another application is not used, with the way out. */
export async function refusalOfForeign(
  client: pg.Client,
  foreign: string[],
  isOwn: boolean,
): Promise<string> {
  const { rows } = await client.query("select current_database() as name");
  const named = `${foreign.slice(0, 3).join(", ")}${foreign.length > 3 ? ", …" : ""}`;
  const count = `${foreign.length} ${foreign.length === 1 ? "table" : "tables"}`;
  return (
    `the database ${rows[0].name} has ${count} of another application (${named}) in its schema public` +
    `${isOwn ? " beside those of this service" : " and none of this service"}; nothing was changed. ` +
    "Make a database for this service alone, and name it in DATABASE_URL"
  );
}
