/** Loads of rows that are killed, or meet others, with the program that a restore and the way back of an update run. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import type { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { eventually } from "../../test-support/control.ts";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { dumpRows } from "./dump-rows.ts";
import { migrate } from "./migrate.ts";
import { openDatabase } from "./pool.ts";

const PROGRAM = path.join(import.meta.dirname, "../backup.ts");

async function connectTo(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** A database with one organisation, and a dump of it. */
async function databaseOf(name: string) {
  const url = await createDatabase();
  const client = await connectTo(url);
  await client.query("insert into orgs (id, name, concurrent_sessions) values ('org_a', $1, 10)", [name]);
  const lines: string[] = [];
  await dumpRows(url, async (line) => void lines.push(line));
  const schema = (JSON.parse(lines[0] ?? "") as { schema: number }).schema;
  return { url, client, lines, schema };
}

/** Starts a load that reads the lines which `send` writes. */
function startLoad(url: string, ...args: string[]) {
  const child = spawn(process.execPath, [PROGRAM, "load", ...args], {
    stdio: ["pipe", "pipe", "ignore", "pipe"],
    env: { NODE_NO_WARNINGS: "1" },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  child.stdin?.end(url);
  const dump = child.stdio[3] as Writable;
  dump.on("error", () => {});
  const send = (lines: readonly string[]) => dump.write(`${lines.join("\n")}\n`);
  return { child, send, close: () => dump.end() };
}

async function answerOf(child: ChildProcess): Promise<unknown> {
  const [out, [code]] = await Promise.all([text(child.stdout as never), once(child, "close")]);
  return code === 0 ? JSON.parse(out) : code;
}

const loadsOf = async (client: pg.Client) =>
  (
    await client.query(
      `select state, query ~ 'attgenerated' as "isAtRows" from pg_stat_activity
         where datname = current_database() and application_name = 'vivarium-restore'`,
    )
  ).rows;

/** Until a load has made the tables, has looked at the columns of one, and waits for more of its rows. */
const untilInTheMiddle = (client: pg.Client) =>
  eventually(async () =>
    expect(await loadsOf(client)).toEqual([{ state: "idle in transaction", isAtRows: true }]),
  );

/** The lines up to the rows of the organisations. */
const halfOf = (lines: readonly string[]) =>
  lines.slice(0, lines.findIndex((line) => line.startsWith("[")) + 1);

const namesOf = async (client: pg.Client) => (await client.query("select name from orgs")).rows;
const schemasOf = async (client: pg.Client) =>
  (await client.query("select nspname as name from pg_namespace where nspname ~ '_(update|restore)_'")).rows;

test("a load that is killed between tables and rows leaves the database as it was, and a repetition has all", async () => {
  const { url, client, lines, schema } = await databaseOf("before");
  await client.query("update orgs set name = 'after'; insert into schema_migrations values (9999, 'next')");
  const args = ["--keep-aside", "update", "--unless-schema", String(schema)];
  const killed = startLoad(url, ...args);
  killed.send(halfOf(lines));
  await untilInTheMiddle(client);
  killed.child.kill("SIGKILL");
  await eventually(async () => expect(await loadsOf(client)).toEqual([]));
  expect([await namesOf(client), await schemasOf(client)]).toEqual([[{ name: "after" }], []]);

  const repeated = startLoad(url, ...args);
  const answer = answerOf(repeated.child);
  repeated.send(lines);
  repeated.close();
  expect(await answer).toEqual({ rows: expect.any(Number), aside: expect.stringMatching(/^before_update_/) });
  expect(await namesOf(client)).toEqual([{ name: "before" }]);
});

test("what begins while a load is at work waits for it: another load finds its schema, and control all rows", async () => {
  const { url, client, lines, schema } = await databaseOf("before");
  await client.query("update orgs set name = 'after'; insert into schema_migrations values (9999, 'next')");
  const args = ["--keep-aside", "update", "--unless-schema", String(schema)];
  const first = startLoad(url, ...args);
  const firstAnswer = answerOf(first.child);
  first.send(halfOf(lines));
  await untilInTheMiddle(client);
  const second = startLoad(url, ...args);
  const secondAnswer = answerOf(second.child);
  second.send(lines);
  second.close();
  const db = openDatabase({ url, log: silentLog });
  const control = migrate(db).finally(() => db.destroy());
  await eventually(async () => {
    const { rows } = await client.query(
      "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'",
    );
    expect(rows).toHaveLength(2);
  });
  first.send(lines.slice(halfOf(lines).length));
  first.close();
  const { rows: loaded, aside } = (await firstAnswer) as { rows: number; aside: string };
  expect([loaded, aside]).toEqual([expect.any(Number), expect.stringMatching(/^before_update_/)]);
  expect([await secondAnswer, await control]).toEqual([{ aside }, []]);
  expect([await namesOf(client), (await schemasOf(client)).length]).toEqual([[{ name: "before" }], 1]);
});
