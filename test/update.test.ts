/** The checks of an update before it stops anything, and rows that are put back, with a real database. */
import { cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { putRows } from "../packages/cli/src/backup/put-rows.ts";
import { loadRows, UncertainLoad } from "../packages/cli/src/backup/rows.ts";
import { readConfig } from "../packages/cli/src/config.ts";
import { prepareUpdate } from "../packages/cli/src/update/prepare.ts";
import { migrate } from "../packages/control/src/db/migrate.ts";
import { openDatabase } from "../packages/control/src/db/pool.ts";
import { saveRows } from "../packages/control/src/db/save-rows.ts";
import { createEmptyDatabase, silentLog } from "../packages/control/test-support/database.ts";

/** This checkout stands for the copy of the next version. */
const NEXT = { path: join(import.meta.dirname, ".."), version: "9.9.9", made_at: "" };
const OLD_SCHEMA = 16;

let folder: string;
let url: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "viv-update-"));
  await mkdir(join(folder, "control"));
  url = await createEmptyDatabase();
  const db = openDatabase({ url, log: silentLog });
  await migrate(db, { upTo: OLD_SCHEMA }).finally(() => db.destroy());
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const config = () => readConfig({ VIV_DATA_DIR: folder, DATABASE_URL: url });
/** Prepares an update of a unit with these settings, called where another program's database is in the environment. */
const prepare = ({ settings = `DATABASE_URL=${url}\n`, copy = NEXT, answers = true } = {}) => {
  const caller = readConfig({ VIV_DATA_DIR: folder, DATABASE_URL: "postgres://127.0.0.1:1/app" });
  return prepareUpdate(caller, copy, { settings, settingsFile: "/etc/vivarium/v.env", answers });
};

async function query(text: string): Promise<Record<string, unknown>[]> {
  const sql = new pg.Client({ connectionString: url });
  await sql.connect();
  const { rows } = await sql.query(text).finally(() => sql.end());
  return rows;
}
const schemaNow = async () => (await query("select max(number) as number from schema_migrations"))[0]?.number;

test("a version whose migrations apply may come, and nothing has changed", async () => {
  const { pending } = await prepare();
  expect(pending[0]).toBe(OLD_SCHEMA + 1);
  expect(await schemaNow()).toBe(OLD_SCHEMA);
  expect(await readdir(join(folder, "control"))).toEqual([]);
});

test("a version with a migration that does not apply is refused with its name", async () => {
  await query("alter table sessions add column isolation text");
  await expect(prepare()).rejects.toThrow(/cannot try the migrations: .*0017_isolation\.sql/);
});

test("a version that is older than the schema is refused with both numbers", async () => {
  await query("insert into schema_migrations (number, name) values (9999, 'x')");
  await expect(prepare()).rejects.toThrow(/the database has schema 9999, this release knows \d+/);
});

test("a copy whose viv does not run is refused", async () => {
  await expect(prepare({ copy: { ...NEXT, path: folder } })).rejects.toThrow(
    "the copy of 9.9.9 does not run",
  );
});

test("a version of which a service does not load is refused with the error", async () => {
  const copy = join(folder, "copy");
  const packages = (name: string) =>
    [join(NEXT.path, "packages", name), join(copy, "packages", name)] as const;
  await cp(...packages("cli"), { recursive: true });
  for (const name of ["node", "control"]) await symlink(...packages(name));
  await symlink(join(NEXT.path, "node_modules"), join(copy, "node_modules"));
  await mkdir(join(copy, "packages/gateway/src"), { recursive: true });
  await writeFile(join(copy, "packages/gateway/src/app.ts"), 'import "./absent.ts";');
  await expect(prepare({ copy: { ...NEXT, path: copy } })).rejects.toThrow(
    /the copy of 9\.9\.9 does not run: Error.*: Cannot find module .*absent\.ts/,
  );
});

test("settings with which the version would not start are refused before its database is asked", async () => {
  await expect(prepare({ settings: "VIV_PRIVATE_OPEN=8.8.8.8:443\n" })).rejects.toThrow(
    "/etc/vivarium/v.env, line 1: VIV_PRIVATE_OPEN",
  );
});

test("a database without a schema is not the unit's: the update is refused", async () => {
  const settings = `DATABASE_URL=${await createEmptyDatabase()}\n`;
  const refusal = "the database that /etc/vivarium/v.env names has no tables of Vivarium (schema 0)";
  await expect(prepare({ settings })).rejects.toThrow(refusal);
  // The unit has never come up: nothing is lost.
  expect((await prepare({ settings, answers: false })).pending[0]).toBe(1);
  await writeFile(join(folder, "control/bootstrap.key"), "key\n");
  await expect(prepare({ settings, answers: false })).rejects.toThrow(refusal);
});

test("a database that does not run keeps nobody from updating a unit that does not answer", async () => {
  const settings = "DATABASE_URL=postgres://127.0.0.1:1/nothing\n";
  await expect(prepare({ settings })).rejects.toThrow("ECONNREFUSED");
  const { pending, untried } = await prepare({ settings, answers: false });
  expect([pending, untried]).toEqual([[], expect.stringContaining("ECONNREFUSED")]);
  await query("insert into schema_migrations (number, name) values (9999, 'x')");
  await expect(prepare({ answers: false })).rejects.toThrow("the database has schema 9999");
});

test("saved rows are put back, unless the database still has their schema", async () => {
  await query("insert into orgs (id, name, concurrent_sessions) values ('org_a', 'a', 10)");
  const file = await saveRows(url, join(folder, "control"), OLD_SCHEMA);
  const put = () => putRows(config(), file, { keepAside: "update", unlessSchemaIs: OLD_SCHEMA });
  expect(await put()).toEqual({});
  const db = openDatabase({ url, log: silentLog });
  await migrate(db).finally(() => db.destroy());
  await query("update orgs set name = 'later'");
  expect(await put()).toMatchObject({ aside: expect.stringMatching(/^before_update_\d+$/) });
  expect([await schemaNow(), await query("select name from orgs")]).toEqual([OLD_SCHEMA, [{ name: "a" }]]);
});

test("a load that may or may not have taken place is repeated once, and rows that are back stay", async () => {
  await query("insert into orgs (id, name, concurrent_sessions) values ('org_a', 'a', 10)");
  const file = await saveRows(url, join(folder, "control"), OLD_SCHEMA);
  const db = openDatabase({ url, log: silentLog });
  await migrate(db).finally(() => db.destroy());
  const options = { keepAside: "update", unlessSchemaIs: OLD_SCHEMA } as const;
  const uncertain = new UncertainLoad("the process that loads them was killed");
  const losesAnswers = (loads: number) => {
    const load = vi.fn(loadRows);
    for (let lost = 0; lost < loads; lost++)
      load.mockImplementationOnce((...given) => loadRows(...given).then(() => Promise.reject(uncertain)));
    return load;
  };
  const once = losesAnswers(1);
  expect(await putRows(config(), file, options, once)).toEqual({
    aside: expect.stringMatching(/^before_update_\d+$/),
  });
  expect(once).toHaveBeenCalledTimes(2);
  expect([await schemaNow(), await query("select name from orgs")]).toEqual([OLD_SCHEMA, [{ name: "a" }]]);
  await expect(putRows(config(), file, options, losesAnswers(2))).rejects.toThrow(uncertain);
});
