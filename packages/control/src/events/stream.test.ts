import type { AddressInfo } from "node:net";
import { connect } from "node:net";
import { EVENT_ID_PATTERN, LIMITS } from "@vivarium/contract/api";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openReader, type Reader } from "../../test-support/event-reader.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { openDatabase } from "../db/pool.ts";
import { deleteOldEvents } from "./store.ts";

let control: Control;
let clock: TestClock;
let orgId: string;
const readers: Reader[] = [];
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  orgId = (await control.sql.query("select id from orgs")).rows[0].id;
});
afterEach(async () => {
  for (const reader of readers.splice(0)) reader.close();
  await control.destroyAll();
});
afterAll(() => control.close());

async function read(query = "", options: { key?: string; headers?: Record<string, string> } = {}) {
  const reader = await openReader(control, query, options);
  readers.push(reader);
  return reader;
}

/** Writes an event directly. */
let made = 0;
async function write(facts: { org?: string; project?: string; session?: string; type?: string } = {}) {
  made += 1;
  const id = `evt_${String(made).padStart(21, "x")}`.toLowerCase();
  const { org = orgId, project = null, session = null, type = "session.paused" } = facts;
  await control.sql.query(
    "insert into events (id, type, org_id, project_id, session_id, data) values ($1, $2, $3, $4, $5, '{}')",
    [id, type, org, project, session],
  );
  return id;
}
const idsOf = (events: { id: string }[]) => events.map(({ id }) => id);
const list = async (query = "", key = control.key) =>
  await control.ask(`GET /v1/events${query}`, { key, headers: { accept: "application/json" } });

test("a frame is the id, the type and one line of JSON", async () => {
  const reader = await read();
  const session = await control.createLive();
  await reader.until(2);
  expect(reader.response.statusCode).toBe(200);
  expect(reader.response.headers).toMatchObject({
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-request-id": expect.any(String),
  });
  const [first] = reader.text.split("\n\n").filter((block) => block.includes("data: "));
  const [id = "", event, data = "", ...more] = first?.split("\n") ?? [];
  expect([id.slice(0, 4), event, more]).toEqual(["id: ", "event: session.created", []]);
  expect(JSON.parse(data.slice("data: ".length))).toEqual({
    id: id.slice("id: ".length),
    type: "session.created",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    org_id: orgId,
    project_id: expect.stringMatching(/^prj_/),
    session_id: session,
    data: { state: "creating" },
  });
  expect(id.slice("id: ".length)).toMatch(EVENT_ID_PATTERN);
});

test("a stream without an id starts now, and continues with new events", async () => {
  const before = await write();
  const reader = await read();
  const after = [await write(), await write()];
  expect(idsOf(await reader.until(2))).toEqual(after);
  expect(idsOf((await list(`?after=${before}`)).body.events)).toEqual(after);
});

test("an organisation sees its own events, whichever key asks", async () => {
  const otherKey = await control.addKey();
  const other = (await control.sql.query("select id from orgs where id <> $1", [orgId])).rows[0].id;
  const [reader, theirs] = [await read(), await read("", { key: otherKey })];
  const own = await write();
  const foreign = await write({ org: other });
  expect(idsOf(await reader.until(1))).toEqual([own]);
  expect(idsOf(await theirs.until(1))).toEqual([foreign]);
  expect(idsOf((await list("?limit=200", otherKey)).body.events)).toEqual([foreign]);
});

test("a key of one project sees the events of its project", async () => {
  const project = (await control.sql.query("select id from projects where org_id = $1", [orgId])).rows[0].id;
  const key = await control.addKey({ orgId, scopedProjectId: project });
  const reader = await read("", { key });
  const hidden = [await write(), await write({ project: "prj_other" })];
  const seen = await write({ project });
  expect(idsOf(await reader.until(1))).toEqual([seen]);
  expect(idsOf((await list(`?after=${seen}`, key)).body.events)).toEqual([]);
  // An event that it may not see counts as an unknown id.
  expect((await list(`?after=${hidden[1]}`, key)).body.events[0].type).toBe("stream.gap");
});

test.each([
  ["session.paused", ["session.paused"]],
  ["session.*", ["session.paused", "session.live"]],
  ["preview.exposed,session.live", ["session.live", "preview.exposed"]],
  ["egress.*,preview.*", ["preview.exposed"]],
  ["nothing.ever", []],
])("types=%s chooses", async (types, expected) => {
  const start = await write({ type: "template.ready" });
  const reader = await read(`?types=${types}&after=${start}`);
  for (const type of ["session.paused", "sessions.other", "session.live", "preview.exposed"])
    await write({ type });
  expect((await list(`?types=${types}&after=${start}`)).body.events.map(typeOf)).toEqual(expected);
  expect((await reader.until(expected.length)).map(typeOf)).toEqual(expected);
});
const typeOf = ({ type }: { type: string }) => type;

test.each(["", "session", "*", "session.*,", "Session.paused", "a.b;drop", "session.*.*x y"])(
  "types=%j is refused",
  async (types) => {
    const answer = await control.ask(`GET /v1/events?types=${encodeURIComponent(types)}`);
    expect(answer).toMatchObject({ status: 400, body: { code: "validation" } });
    expect(answer.body.error).toMatch(/^types: /);
  },
);

test("session_id chooses the events of one session, also after its end", async () => {
  const id = await control.createLive();
  await control.createLive();
  await control.ask(`DELETE /v1/sessions/${id}`);
  const { body } = await list(`?session_id=${id}`);
  expect(body.events.map(typeOf)).toEqual(["session.created", "session.live", "session.destroyed"]);
  expect((await list("?session_id=none")).body).toEqual({ events: [] });
});

test("JSON pages from the oldest to the newest, each event once", async () => {
  const start = await write();
  const ids: string[] = [];
  for (let count = 0; count < 7; count++) ids.push(await write());
  const seen: string[] = [];
  let query = `?limit=3&after=${start}`;
  for (let page = 0; page < 3; page++) {
    const { body } = await list(query);
    seen.push(...idsOf(body.events));
    expect(body.next_cursor === undefined).toBe(page === 2);
    query = `?limit=3&after=${start}&cursor=${body.next_cursor}`;
  }
  expect(seen).toEqual(ids);
  expect((await list("?cursor=xyz")).body.error).toMatch(/^cursor: /);
});

test.each([
  ["application/json", "application/json"],
  ["application/json; q=1, */*", "application/json"],
  ["text/event-stream", "text/event-stream"],
  ["application/json, text/event-stream", "text/event-stream"],
  ["*/*", "text/event-stream"],
])("Accept: %s is answered with %s", async (accept, type) => {
  const reader = await read("", { headers: { accept } });
  expect(reader.response.headers["content-type"]).toContain(type);
});

test("Last-Event-ID replays everything later, then follows", async () => {
  const [last, ...later] = [await write(), await write(), await write()];
  const reader = await read("", { headers: { "last-event-id": last } });
  expect(idsOf(await reader.until(2))).toEqual(later);
  later.push(await write());
  expect(idsOf(await reader.until(3))).toEqual(later);
});

test("after is the same in the query, and the header of a reconnect is later than it", async () => {
  const ids = [await write(), await write(), await write()];
  expect(idsOf(await (await read(`?after=${ids[0]}`)).until(2))).toEqual(ids.slice(1));
  const reconnected = await read(`?after=${ids[0]}`, { headers: { "last-event-id": ids[1] ?? "" } });
  expect(idsOf(await reconnected.until(1))).toEqual(ids.slice(2));
});

test("a reader that breaks off before the first event resumes where the stream began", async () => {
  const before = await write();
  const reader = await read();
  await eventually(() => expect(reader.text).toBe(`id: ${before}\n\n`));
});

test.each(["evt_aaaaaaaaaaaaaaaaaaaaa", "evt_000000000000000000000", "no id at all", "%01"])(
  "an unknown id (%j) is answered with the gap, and then with all events",
  async (id) => {
    await write();
    const all = (await list("?limit=200")).body.events;
    const reader = await read(`?after=${id}`);
    const [gap, ...rest] = await reader.until(all.length + 1);
    expect(gap).toEqual({
      id: expect.stringMatching(EVENT_ID_PATTERN),
      type: "stream.gap",
      created_at: expect.any(String),
      org_id: orgId,
      data: { oldest_id: all[0].id },
    });
    // A reader cannot resume from it, so it has no id.
    expect(reader.frames[0]).toMatchObject({ event: "stream.gap" });
    expect(reader.frames[0]).not.toHaveProperty("id");
    expect(rest.slice(0, all.length)).toEqual(all);
  },
);

test("an event is kept for seven days; a later reader gets the gap", async () => {
  const old = await write();
  await clock.advance(LIMITS.eventRetentionMs - 60_000);
  const kept = await write();
  expect(idsOf((await list(`?after=${old}`)).body.events)).toEqual([kept]);
  await clock.advance(120_000);
  const { events } = (await list(`?after=${old}`)).body;
  expect(events.map(typeOf)).toEqual(["stream.gap", "session.paused"]);
  expect(events[0].data).toEqual({ oldest_id: kept });
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  await deleteOldEvents(db).finally(() => db.destroy());
  expect(idsOf((await control.sql.query("select id from events")).rows)).toEqual([kept]);
});

test("where nothing is kept the gap names no oldest event", async () => {
  const { body } = await list("?after=evt_aaaaaaaaaaaaaaaaaaaaa&types=nothing.ever");
  expect(body.events).toEqual([expect.objectContaining({ type: "stream.gap", data: {} })]);
});

test("a stream ends when its key is revoked, and not before", async () => {
  const key = await control.addKey({ orgId });
  const [ended, other] = [await read("", { key }), await read()];
  await control.sql.query(
    `update api_keys set revoked_at = now()
      where id = (select id from api_keys where name = 'k' and org_id = $1 order by created_at desc limit 1)`,
    [orgId],
  );
  await ended.untilEnd();
  const id = await write();
  expect(idsOf(await other.until(1))).toEqual([id]);
});

test("a reader that takes nothing is closed once it is more than 1,000 events behind; one that reads gets them all", async () => {
  const start = await write();
  const fast = await read(`?after=${start}&types=test.*`);
  const { port } = control.app.server.server.address() as AddressInfo;
  const socket = connect(port, "127.0.0.1");
  let isClosed = false;
  socket.on("close", () => {
    isClosed = true;
  });
  socket.on("error", () => undefined);
  socket.pause();
  socket.write(
    `GET /v1/events?after=${start}&types=test.* HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${control.key}\r\n\r\n`,
  );
  const pile = (count: number, bytes: number) =>
    control.sql.query(
      `insert into events (id, type, org_id, data)
        select 'evt_' || substr(md5(random()::text), 1, 21), 'test.big', $1, jsonb_build_object('x', repeat('x', $3))
        from generate_series(1, $2)`,
      [orgId, count, bytes],
    );
  await pile(900, 16_384);
  await fast.until(900);
  await new Promise((resolve) => setTimeout(resolve, 6_000));
  expect(await serverSockets()).toBe(2);
  await pile(1_000, 16_384);
  await eventually(async () => expect(await serverSockets()).toBe(1));
  socket.resume();
  await eventually(() => expect(isClosed).toBe(true));
  await fast.until(1_900);
});

const serverSockets = () =>
  new Promise<number>((resolve) =>
    control.app.server.server.getConnections((_error, count) => resolve(count)),
  );
