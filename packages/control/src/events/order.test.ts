import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { DatabaseLine } from "../../test-support/database-line.ts";
import { openReader, type Reader } from "../../test-support/event-reader.ts";
import { type App, createApp } from "../app.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { appendEvent, eventOf } from "./append.ts";
import { publishEvents } from "./publish.ts";

let control: Control;
let db: Database;
let orgId: string;
const readers: Reader[] = [];
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  orgId = (await control.sql.query("select id from orgs")).rows[0].id;
});
afterEach(() => {
  for (const reader of readers.splice(0)) reader.close();
});
afterAll(async () => {
  await db.destroy();
  await control.close();
});

async function read(query = "", of = control) {
  const reader = await openReader(of, query);
  readers.push(reader);
  return reader;
}

/** Opens a transaction that writes an event of the session. The returned function commits it. */
async function openEvent(session: string) {
  let commit = () => {};
  const mayCommit = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let written = () => {};
  const hasWritten = new Promise<void>((resolve) => {
    written = resolve;
  });
  const done = db.transaction().execute(async (tx) => {
    await appendEvent(tx, eventOf({ id: session, org_id: orgId, project_id: null }, "session.paused", {}));
    written();
    await mayCommit;
  });
  await hasWritten;
  return async () => {
    commit();
    await done;
  };
}
const sessionsOf = (events: { session_id?: string }[]) => events.map(({ session_id }) => session_id);

test("a transaction that commits late is not skipped by a reader that has read later events", async () => {
  const reader = await read();
  const commitEarly = await openEvent("early");
  const commitLate = await openEvent("late");
  await commitLate();
  expect(sessionsOf(await reader.until(1))).toEqual(["late"]);
  await commitEarly();
  expect(sessionsOf(await reader.until(2))).toEqual(["late", "early"]);
});

test("a publisher takes events that were committed while it waited for the lock", async () => {
  const other = new pg.Client({ connectionString: control.settings.databaseUrl });
  await other.connect();
  await other.query("begin; select position from event_head for update");
  const publishing = publishEvents(db);
  await (await openEvent("meanwhile"))();
  await other.query("commit");
  await other.end();
  await publishing;
  const { rows } = await control.sql.query("select position from events where session_id = 'meanwhile'");
  expect(rows[0].position).not.toBeNull();
});

test("an event that is rolled back is never sent", async () => {
  const reader = await read();
  await db
    .transaction()
    .execute(async (tx) => {
      await appendEvent(tx, eventOf({ id: "undone", org_id: orgId, project_id: null }, "session.paused", {}));
      throw new Error("rolled back");
    })
    .catch(() => undefined);
  await (await openEvent("done"))();
  expect(sessionsOf(await reader.until(1))).toEqual(["done"]);
});

test("many writers and many publishers: each event has one position, and every reader gets each once, in order", async () => {
  const reader = await read("?types=session.paused");
  const writers = Array.from({ length: 10 }, async (_, writer) => {
    for (let count = 0; count < 20; count++) {
      await db.transaction().execute(async (tx) => {
        const owner = { id: `w${writer}`, org_id: orgId, project_id: null };
        await appendEvent(tx, eventOf(owner, "session.paused", { count }));
        if (count % 3 === writer % 3) await new Promise((resolve) => setTimeout(resolve, 5));
      });
    }
  });
  let isDone = false;
  const publishers = Array.from({ length: 3 }, async () => {
    while (!isDone) await publishEvents(db);
  });
  await Promise.all(writers);
  isDone = true;
  await Promise.all(publishers);
  const events = await reader.until(200);
  expect(new Set(events.map(({ id }) => id)).size).toBe(200);
  for (let writer = 0; writer < 10; writer++) {
    const counts = events
      .filter(({ session_id }) => session_id === `w${writer}`)
      .map(({ data }) => data.count);
    expect(counts).toEqual(Array.from({ length: 20 }, (_, count) => count));
  }
  const { rows } = await control.sql.query(
    "select count(distinct position)::int as places, max(position) as last, (select position from event_head) as head from events",
  );
  expect(rows[0].last).toBe(rows[0].head);
  expect(rows[0].places).toBe(
    (await control.sql.query("select count(*)::int as all from events")).rows[0].all,
  );
});

test("events of fast moves of one session are in the order of their commits", async () => {
  const id = await control.createLive();
  for (let round = 0; round < 5; round++) {
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await control.ask(`POST /v1/sessions/${id}/resume`);
  }
  const reader = await read(`?session_id=${id}&after=evt_000000000000000000000`);
  const events = await reader.until(13);
  const moves = ["session.paused", "session.resumed"];
  expect(events.slice(1).map(({ type }) => type)).toEqual([
    "session.created",
    "session.live",
    ...Array.from({ length: 5 }, () => moves).flat(),
  ]);
});

async function another(databaseUrl = control.settings.databaseUrl): Promise<{ app: App; as: Control }> {
  const app = await createApp({ ...control.settings, databaseUrl }, silentLog);
  app.startSweeps();
  await app.server.listen({ host: "127.0.0.1", port: 0 });
  return { app, as: Object.assign(Object.create(control), { app }) as Control };
}

test("a reader of one process gets the events of another", async () => {
  const { app, as } = await another();
  const reader = await read("", as);
  const id = await control.createLive();
  const events = await reader.until(2);
  expect(events.map(({ type, session_id }) => [type, session_id])).toEqual([
    ["session.created", id],
    ["session.live", id],
  ]);
  await app.close();
});

test("a shutdown ends the streams, and a reader resumes at another process where it was", async () => {
  const { app, as } = await another();
  const reader = await read("", as);
  await (await openEvent("before"))();
  const [last] = await reader.until(1);
  await app.close();
  await reader.untilEnd();
  await (await openEvent("after"))();
  const resumed = await read(`?after=${last?.id}`);
  expect(sessionsOf(await resumed.until(1))).toEqual(["after"]);
});

test("a database that is away for a while ends no stream and loses nothing", async () => {
  const line = new DatabaseLine(control.settings.databaseUrl);
  await line.restore();
  const { app, as } = await another(line.url);
  const reader = await read("", as);
  await (await openEvent("one"))();
  await reader.until(1);
  await line.sever();
  await (await openEvent("two"))();
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(sessionsOf(reader.events)).toEqual(["one"]);
  await line.restore();
  await eventually(() => expect(sessionsOf(reader.events)).toEqual(["one", "two"]));
  expect(reader.hasEnded).toBe(false);
  await app.close();
  await line.close();
});
