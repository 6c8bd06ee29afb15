/** Entries of commands, as `command_capture` says, and how the log is read. */

import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Ask, type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { openPty, streamOf } from "../../test-support/terminal-client.ts";
import { openDatabase } from "../db/pool.ts";
import { CommandLog } from "./command-log.ts";
import { auditKeyOf } from "./entry.ts";
import { EntryQueue } from "./entry-queue.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
});
afterEach(async () => {
  control.node.onExec = (_call, output) => output().exit();
  await control.destroyAll();
});
afterAll(() => control.close());

interface Entry {
  id: string;
  at: string;
  outcome: string;
  meta: Record<string, unknown>;
  [field: string]: unknown;
}
const page = async (query: string, ask: Ask = {}) => (await control.ask(`GET /v1/audit?${query}`, ask)).body;
/** Entries of the session's commands, oldest first, once there are so many and none is pending. */
async function entriesOf(id: string, count: number): Promise<Entry[]> {
  return await eventually(async () => {
    const { entries } = await page(`session_id=${id}&action=session.exec`);
    expect(entries.filter(({ outcome }: Entry) => outcome !== "pending")).toHaveLength(count);
    return entries.toReversed();
  });
}

test("a command leaves one entry: who, what, how it ended", async () => {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => output().exit(3, { duration_us: 12_400 });
  await control.ask(`POST /v1/sessions/${id}/exec`, {
    body: { command: ["make", "all"] },
    headers: { "x-request-id": "mine-7" },
  });
  const { key_id: keyId } = (await control.ask("GET /v1/whoami")).body;
  expect(await entriesOf(id, 1)).toEqual([
    {
      id: expect.stringMatching(/^aud_[a-z0-9]{21}$/),
      at: expect.stringMatching(/Z$/),
      actor: { kind: "api_key", id: keyId },
      action: "session.exec",
      target: id,
      outcome: "ok",
      request_id: "mine-7",
      ip: "127.0.0.1",
      meta: { kind: "exec", executable: "make", exit_code: 3, duration_ms: 12, timed_out: false },
    },
  ]);
});

test.each([
  ["hash", { hash: expect.stringMatching(/^[0-9a-f]{64}$/) }],
  ["executable", { executable: "echo" }],
  ["full", { command: ["echo", "a b"] }],
])("command_capture %s decides what is kept of it", async (mode, kept) => {
  const id = await control.createLive({ command_capture: mode });
  await control.exec(id, ["echo", "a b"]);
  const [entry] = await entriesOf(id, 1);
  expect(entry?.meta).toEqual({ kind: "exec", ...kept, exit_code: 0, duration_ms: 2, timed_out: false });
});

test("streams, batch items, runs and terminals with a command have entries as well", async () => {
  const id = await control.createLive({ command_capture: "full" });
  await control.ask(`POST /v1/sessions/${id}/exec?stream=true`, { body: { command: ["streamed"] } });
  await control.ask("POST /v1/sessions/batch/exec", { body: { session_ids: [id], command: ["batched"] } });
  const client = await openPty(control, id, "?cmd=top&cmd=-b");
  (await streamOf(control, id)).stream.exit(7);
  await client.closed;
  const plain = await openPty(control, id);
  plain.webSocket.terminate();
  expect((await entriesOf(id, 3)).map(({ meta }) => [meta.kind, meta.command, meta.exit_code])).toEqual([
    ["exec", ["streamed"], 0],
    ["exec", ["batched"], 0],
    ["pty", ["top", "-b"], 7],
  ]);
  const run = await control.ask("POST /v1/sessions/exec", {
    body: { language: "python", code: "1", dependencies: ["six"], command_capture: "full" },
  });
  const ran = await entriesOf(run.body.session_id, 2);
  expect(ran.map(({ meta }) => [meta.kind, (meta.command as string[]).at(-1)])).toEqual([
    ["run", "six"],
    ["run", "main.py"],
  ]);
});

test.each([
  ["that runs", {}, {}],
  ["that could not be spawned", { state: "exited", exit_code: 127, ended_at_ms: 2 }, { exit_code: 127 }],
])("the start of a named process %s has an entry", async (_title, became, end) => {
  const id = await control.createLive();
  const command = ["python3", "-m", "http.server"];
  control.node.onGuest = (call) => {
    call.json({
      name: "web",
      argv: command,
      keep_alive: false,
      pid: 7,
      state: "running",
      started_at_ms: 1,
      ...became,
    });
  };
  const answer = await control.ask(`POST /v1/sessions/${id}/processes`, { body: { name: "web", command } });
  expect(answer.status).toBe(200);
  const [entry] = await entriesOf(id, 1);
  expect([entry?.outcome, entry?.meta]).toEqual(["ok", { kind: "process", executable: "python3", ...end }]);
});

test("a command that runs is pending, and completed once it ends", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onExec = async (_call, output) => {
    const running = output();
    await promise;
    running.exit(-1, { timed_out: true });
  };
  const ran = control.exec(id);
  await eventually(async () => {
    const { entries } = await page(`session_id=${id}&action=session.exec`);
    expect(entries).toMatchObject([{ outcome: "pending", meta: { kind: "exec", executable: "true" } }]);
    expect(entries[0].meta).not.toHaveProperty("exit_code");
  });
  resolve();
  await ran;
  const [entry] = await entriesOf(id, 1);
  expect(entry).toMatchObject({
    outcome: "ok",
    meta: { executable: "true", exit_code: -1, timed_out: true },
  });
});

test("a command whose end is unknown has an entry without an exit code", async () => {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => {
    const out = output();
    setTimeout(() => out.breakOff(), 20);
  };
  expect((await control.exec(id)).status).toBe(500);
  const [entry] = await entriesOf(id, 1);
  expect(entry?.outcome).toBe("error");
  expect(entry?.meta).toEqual({ kind: "exec", executable: "true" });
});

test("a command that never started has no entry", async () => {
  const id = await control.createLive();
  control.node.onExec = () => {
    throw new Refusal("cwd_not_found");
  };
  expect((await control.exec(id)).status).toBe(400);
  control.node.onExec = (_call, output) => output().exit();
  await control.exec(id, ["second"]);
  expect((await entriesOf(id, 1))[0]?.meta.executable).toBe("second");
});

test("entries outlive their session, and an outage of the catalog", async () => {
  const id = await control.createLive();
  await control.sql.query("alter table audit_log rename to audit_log_away");
  await control.exec(id, ["during"]);
  await new Promise((resolve) => setTimeout(resolve, 600));
  await control.sql.query("alter table audit_log_away rename to audit_log");
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await entriesOf(id, 1))[0]?.meta.executable).toBe("during");
});

test("only the entry that the database refuses is left out", async () => {
  const id = await control.createLive({ command_capture: "full" });
  const { rows } = await control.sql.query("select * from sessions where id = $1", [id]);
  const said: unknown[] = [];
  const log = Object.assign(Object.create(silentLog), { warn: (...words: unknown[]) => said.push(words) });
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const auditQueue = new EntryQueue({ db, log });
  const pepper = Buffer.from("p");
  const commandLog = new CommandLog({ auditQueue, auditKey: auditKeyOf(pepper), pepper });
  const by = {
    orgId: rows[0].org_id,
    actor: { kind: "api_key" as const, id: "key_x" },
    requestId: "r",
    ip: "::1",
  };
  const start = (...argv: string[]) =>
    commandLog.started({ session: rows[0], by, kind: "exec", argv, secrets: [] });
  const first = start("c0");
  for (const word of ["c1", "\ud800 hunter2", "c2", "c3", "\0", "c4"]) start(word).ended({});
  await auditQueue.flush();
  first.ended({ exit_code: 3 });
  start("c5").ended({});
  await auditQueue.flush();
  await db.destroy();
  const entries = await entriesOf(id, 6);
  expect(entries.map(({ meta }) => meta.command)).toEqual([["c0"], ["c1"], ["c2"], ["c3"], ["c4"], ["c5"]]);
  expect(entries[0]?.meta.exit_code).toBe(3);
  expect(said.map((words) => JSON.stringify(words))).toEqual([
    expect.stringContaining('"sql_state":"22P'),
    expect.stringContaining('"sql_state":"22P'),
  ]);
  expect(JSON.stringify(said)).not.toContain("hunter2");
});

describe("GET /v1/audit", () => {
  let id: string;
  let entries: Entry[];
  beforeAll(async () => {
    id = await control.createLive();
    for (let n = 0; n < 5; n++) {
      await control.exec(id, [`c${n}`]);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    entries = (await entriesOf(id, 5)).toReversed();
  });

  test("pages from the newest on, and nothing is shown twice or left out", async () => {
    const seen: string[] = [];
    let cursor = "";
    for (let pages = 0; pages < 3; pages++) {
      const body = await page(`action=session.exec&session_id=${id}&limit=2${cursor && `&cursor=${cursor}`}`);
      seen.push(...body.entries.map((entry: Entry) => entry.id));
      expect(body.next_cursor === undefined).toBe(pages === 2);
      cursor = body.next_cursor;
    }
    expect(seen).toEqual(entries.map((entry) => entry.id));
    expect(entries.map(({ meta }) => meta.executable)).toEqual(["c4", "c3", "c2", "c1", "c0"]);
  });

  test("since counts its instant in, until does not", async () => {
    const [newest, , middle] = entries;
    const since = await page(`action=session.exec&session_id=${id}&since=${middle?.at}`);
    expect(since.entries.map((entry: Entry) => entry.id)).toEqual(
      entries.slice(0, 3).map((entry) => entry.id),
    );
    expect(await page(`action=session.exec&session_id=${id}&since=${middle?.at.toLowerCase()}`)).toEqual(
      since,
    );
    const until = await page(`action=session.exec&session_id=${id}&since=${middle?.at}&until=${newest?.at}`);
    expect(until.entries.map((entry: Entry) => entry.id)).toEqual(
      entries.slice(1, 3).map((entry) => entry.id),
    );
  });

  test("filters by action and by session; an id of the wrong form matches nothing", async () => {
    expect((await page(`session_id=${id}&action=session.exec`)).entries).toHaveLength(5);
    expect((await page(`session_id=${id}&action=session.other`)).entries).toEqual([]);
    expect((await page("session_id=nope")).entries).toEqual([]);
    expect((await page(`session_id=${"b".repeat(21)}`)).entries).toEqual([]);
  });

  test.each(["since=yesterday", "until=2027", "limit=0", "limit=x", "cursor=x", "action=a&action=b"])(
    "%s is 400 and names the parameter",
    async (query) => {
      const answer = await control.ask(`GET /v1/audit?${query}`);
      expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
      expect(answer.body.error.startsWith(query.split("=")[0])).toBe(true);
    },
  );

  test("is the organisation's own, and closed to a key of one project", async () => {
    const theirs = await control.addKey();
    expect((await page("", { key: theirs })).entries).toEqual([]);
    await control.ask("POST /v1/projects", { key: theirs, body: { name: "theirs" } });
    expect((await page("", { key: theirs })).entries).toMatchObject([{ action: "project.create" }]);
    const { rows } = await control.sql.query("select id, org_id from projects limit 1");
    const scoped = await control.addKey({ orgId: rows[0].org_id, scopedProjectId: rows[0].id });
    const answer = await control.ask("GET /v1/audit", { key: scoped });
    expect([answer.status, answer.body.code]).toEqual([403, "forbidden"]);
  });
});

test("entries of one instant are in the order of writing, also across pages", async () => {
  const id = await control.createLive();
  const written = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
  for (const command of written) await control.exec(id, [command]);
  await entriesOf(id, written.length);
  await control.sql.query(
    "update audit_log set at = (select min(at) from audit_log where session_id = $1) where session_id = $1",
    [id],
  );
  const newestFirst = written.toReversed();
  const commandsOf = (entries: Entry[]) => entries.map(({ meta }) => meta.executable);
  expect(commandsOf((await page(`session_id=${id}&action=session.exec`)).entries)).toEqual(newestFirst);
  const paged: unknown[] = [];
  let cursor = "";
  do {
    const body = await page(`action=session.exec&session_id=${id}&limit=2${cursor}`);
    paged.push(...commandsOf(body.entries));
    cursor = body.next_cursor && `&cursor=${body.next_cursor}`;
  } while (cursor);
  expect(paged).toEqual(newestFirst);
});
