import pg from "pg";
import { expect, test } from "vitest";
import { createDatabase, createEmptyDatabase, silentLog } from "../../test-support/database.ts";
import { dumpRows, listTables } from "./dump-rows.ts";
import { checkLoad, loadRows } from "./load-rows.ts";
import { migrate } from "./migrate.ts";
import { ownTableNames } from "./own-tables.ts";
import { openDatabase } from "./pool.ts";

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return await work(client).finally(() => client.end());
}

async function dump(
  url: string,
  onLine: (line: string) => Promise<void> = async () => {},
): Promise<string[]> {
  const lines: string[] = [];
  await dumpRows(url, async (line) => {
    lines.push(line);
    await onLine(line);
  });
  return lines;
}

async function* from(lines: readonly string[]): AsyncGenerator<string> {
  yield* lines;
}

async function load(url: string, lines: readonly string[], keepAside?: "restore" | "update") {
  const loaded = await loadRows({ url, keepAside }, from(lines));
  if (!loaded) throw new Error("nothing was loaded");
  return loaded;
}

/** Every row of every table, as text. */
const contentOf = (url: string) =>
  withClient(url, async (client) => {
    const content: Record<string, string[]> = {};
    for (const table of await listTables(client)) {
      const { rows } = await client.query(`select t::text as row from ${table} t order by 1`);
      content[table] = rows.map(({ row }) => row);
    }
    return content;
  });

const [S1, S2, S3] = ["1", "2", "3"].map((end) => end.padStart(21, "s"));

/** Rows with values that are easily changed on their way through text. */
const fill = (url: string) =>
  withClient(url, async (client) => {
    await client.query("insert into orgs (id, name, concurrent_sessions) values ('org_a', $1, 10)", [
      'a "b"\n\\c\t{é}🎈 $1',
    ]);
    await client.query(
      "insert into api_keys (id, org_id, name, digest, created_at) values ('key_a', 'org_a', 'k', $1, '2027-03-01 09:30:00.123457+02')",
      [Buffer.from([0, 1, 255, 92, 34])],
    );
    for (const [id, labels] of [
      [S1, null],
      [S2, "null"],
      [S3, '{"a":"é","b":null}'],
    ])
      await client.query(
        `insert into sessions (id, org_id, key_id, origin, state, size, template, labels, egress, no_sudo, on_pty_detach,
             paused_ttl_ms, destroy_on_completion, command_capture, wake_on_http)
           values ($1, 'org_a', 'key_a', 'api', 'creating', 'small', 'base', $2::jsonb, '{"mode":"allow","allow":[]}',
             false, 'pause', 1, false, 'hash', true)`,
        [id, labels],
      );
    for (const type of ["session.created", "session.live"])
      await client.query(
        "insert into events (id, org_id, session_id, type, data) values ($1, 'org_a', $2, $1, '{}')",
        [type, S1],
      );
  });

test("a dump loads into an empty database with every value as it was, and sequences continue behind it", async () => {
  const url = await createDatabase();
  await fill(url);
  const lines = await dump(url);
  const copy = await createEmptyDatabase();
  const { rows } = await load(copy, lines);
  expect(rows).toBeGreaterThanOrEqual(7);
  expect(await contentOf(copy)).toEqual(await contentOf(url));
  const nextSeq = async (of: string) =>
    await withClient(of, async (client) => {
      const { rows: made } = await client.query(
        "insert into events (id, org_id, type, data) values ('next', 'org_a', 'x', '{}') returning seq",
      );
      return Number(made[0].seq);
    });
  expect(await nextSeq(copy)).toBe(await nextSeq(url));
});

test("a dump is of one instant, whatever is written meanwhile", async () => {
  const url = await createDatabase();
  await fill(url);
  const before = await contentOf(url);
  const lines = await dump(url, async (line) => {
    if (!line.includes('"snapshots"')) return;
    await withClient(url, (client) => client.query("delete from sessions; update orgs set name = 'later'"));
  });
  const copy = await createEmptyDatabase();
  await load(copy, lines);
  expect(await contentOf(copy)).toEqual(before);
  expect(await contentOf(url)).not.toEqual(before);
});

test("a dump begins with the schema and the saved states that its rows refer to", async () => {
  const url = await createDatabase();
  await fill(url);
  await withClient(url, (client) =>
    client.query(
      "update sessions set state = 'paused', snapshot_id = 'pau_' || id, paused_at = now(), incarnation = 1 where id = $1",
      [S1],
    ),
  );
  await withClient(url, (client) =>
    client.query(
      `insert into templates (id, org_id, name, version, size, baseline, no_sudo, has_memory, source_image, sizes)
         values ('tpl_${S2}', 'org_a', 'deb', 2, 'small', 'tpl_${S2}', false, false, 'docker.io/library/debian:13', '{small}')`,
    ),
  );
  const head = JSON.parse((await dump(url))[0] ?? "");
  expect(head).toEqual({
    schema: expect.any(Number),
    snapshots: [`pau_${S1}`],
    volumes: [],
    artifacts: [],
    archives: [],
    // Made of an image: no saved state.
    imported: ["deb@2"],
  });
});

test("a dump of an earlier schema loads, and the next start brings it up to date", async () => {
  const url = await createEmptyDatabase();
  const old = openDatabase({ url, log: silentLog });
  await migrate(old, { upTo: 3 });
  await old.destroy();
  await withClient(url, (client) =>
    client.query("insert into orgs (id, name, concurrent_sessions) values ('org_old', 'o', 1)"),
  );
  const copy = await createEmptyDatabase();
  await load(copy, await dump(url));
  const db = openDatabase({ url: copy, log: silentLog });
  expect((await migrate(db))[0]).toBe(4);
  expect(await db.selectFrom("orgs").select("id").execute()).toEqual([{ id: "org_old" }]);
  await db.destroy();
});

test.each([
  ["cut off", (lines: string[]) => lines.slice(0, -1), "the dump is cut off"],
  ["without a row", (lines: string[]) => lines.filter((line) => !line.startsWith("[")), "rows of"],
  ["of a later schema", (lines: string[]) => ['{"schema":9999}', ...lines.slice(1)], "has schema 9999"],
  ["without a head", (lines: string[]) => lines.slice(1), "no dump of the database"],
  ["empty", () => [], "no dump of the database"],
])("a dump that is %s is refused, and loads nothing", async (_what, damage, message) => {
  const url = await createDatabase();
  await fill(url);
  const copy = await createEmptyDatabase();
  await expect(load(copy, damage(await dump(url)))).rejects.toThrow(message);
  const orgs = await withClient(copy, (client) =>
    client
      .query("select to_regclass('orgs') as known")
      .then(async ({ rows }) => (rows[0].known ? (await client.query("select from orgs")).rowCount : 0)),
  );
  expect(orgs).toBe(0);
});

test("a database with our tables is refused, or kept aside under another name", async () => {
  const url = await createDatabase();
  await fill(url);
  const lines = await dump(url);
  const other = await createDatabase();
  await withClient(other, (client) =>
    client.query("insert into orgs (id, name, concurrent_sessions) values ('org_b', 'b', 1)"),
  );
  await expect(load(other, lines)).rejects.toThrow("has tables of this service already");
  const { aside } = await load(other, lines, "restore");
  expect(aside).toMatch(/^before_restore_\d{14}$/);
  expect(await contentOf(other)).toEqual(await contentOf(url));
  const kept = await withClient(other, (client) => client.query(`select id from ${aside}.orgs`));
  expect(kept.rows).toEqual([{ id: "org_b" }]);
});

const makeOtherTables = (url: string) =>
  withClient(url, async (client) => {
    await client.query(
      "create table customers (id int); insert into customers select generate_series(1, 5000)",
    );
    await client.query("create table orders (id serial, n int); insert into orders (n) values (1)");
  });

const countCustomers = (url: string) =>
  withClient(url, async (client) => (await client.query("select from customers")).rowCount);

test.each([undefined, "restore", "update"] as const)(
  "a database with tables of another application alone is refused, with keepAside %s, and stays as it was",
  async (keepAside) => {
    const url = await createDatabase();
    await fill(url);
    const lines = await dump(url);
    const other = await createEmptyDatabase();
    await makeOtherTables(other);
    // Other programs name a table of theirs the same.
    await withClient(other, (client) => client.query("create table schema_migrations (version text)"));
    const refusal =
      /database test_\w+ has 3 tables of another application \(customers, orders, schema_migrations\)/;
    await expect(checkLoad({ url: other, keepAside })).rejects.toThrow(refusal);
    await expect(load(other, lines, keepAside)).rejects.toThrow(refusal);
    expect(await countCustomers(other)).toBe(5000);
    const { rows } = await withClient(other, (client) => client.query("select to_regclass('orgs') as orgs"));
    expect(rows).toEqual([{ orgs: null }]);
  },
);

test("tables of another application beside ours are in no dump, and a restore does not move them away", async () => {
  const url = await createDatabase();
  await fill(url);
  await makeOtherTables(url);
  await withClient(url, (client) => client.query("select nextval('preview_versions')"));
  const lines = await dump(url);
  expect(lines.join()).not.toMatch(/customers|orders/);
  const { sequences } = JSON.parse(lines.at(-2) ?? "");
  expect(Object.keys(sequences).toSorted()).toEqual(["events_seq_seq", "preview_versions"]);
  await load(await createEmptyDatabase(), lines);
  await expect(load(url, lines, "restore")).rejects.toThrow("2 tables of another application");
  expect(await countCustomers(url)).toBe(5000);
});

test("tables of an extension of PostgreSQL are not taken for another application's, and keep their rows", async () => {
  const url = await createDatabase();
  await fill(url);
  const lines = await dump(url);
  const other = await createEmptyDatabase();
  await makeOtherTables(other);
  await withClient(other, async (client) => {
    // No extension with a table comes with the server: one that is there takes the table as a part of itself.
    await client.query(
      "alter extension plpgsql add table customers; alter extension plpgsql add table orders",
    );
  });
  await load(other, lines);
  expect(await countCustomers(other)).toBe(5000);
  expect(await contentOf(other)).toEqual(await contentOf(url));
});

test("the tables of a new database are those that the migrations name", async () => {
  const { rows } = await withClient(await createDatabase(), (client) =>
    client.query(
      "select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace",
    ),
  );
  const made = rows.map(({ name }) => name);
  expect(made.toSorted()).toEqual([...(await ownTableNames()), "schema_migrations"].toSorted());
});

test("a load that fails leaves the database as it was that it would have kept aside", async () => {
  const url = await createDatabase();
  await fill(url);
  const before = await contentOf(url);
  await expect(load(url, (await dump(url)).slice(0, -1), "restore")).rejects.toThrow("cut off");
  expect(await contentOf(url)).toEqual(before);
});

test("of the tables that failed updates have kept aside, the last ones stay", async () => {
  const url = await createDatabase();
  await fill(url);
  const lines = await dump(url);
  const { aside: first = "" } = await load(url, lines, "update");
  await withClient(url, (client) => client.query(`alter schema ${first} rename to before_update_1`));
  const { aside } = await load(url, lines, "update");
  const { rows } = await withClient(url, (client) =>
    client.query("select nspname as name from pg_namespace where nspname ~ '_update_'"),
  );
  expect(rows).toEqual([{ name: aside }]);
});
