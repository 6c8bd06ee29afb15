import { SESSION_ID_PATTERN } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { decodeCursor, encodeCursor } from "../http/cursor.ts";

let control: Control;
const current: string[] = [];
const ended: string[] = [];
beforeAll(async () => {
  control = await startControl();
  for (let index = 0; index < 5; index++) {
    const id = await control.create({
      external_id: `gone-${index}`,
      labels: { n: String(index) },
      env: { A: "1" },
    });
    await control.ask(`DELETE /v1/sessions/${id}${index === 0 ? "?reason=shell_exit" : ""}`);
    ended.unshift(id);
  }
  for (let index = 0; index < 3; index++) {
    current.unshift(await control.createLive({ external_id: index < 2 ? "twice" : "once" }));
  }
});
afterAll(() => control.close());

const list = async (query = "") => {
  const answer = await control.ask(`GET /v1/sessions${query}`);
  const ids = answer.body.sessions?.map((session: { session_id: string }) => session.session_id);
  return { ...answer, ids: ids as string[] };
};

test("lists sessions that are not destroyed, newest first", async () => {
  expect((await list()).ids).toEqual(current);
  expect((await list()).body).not.toHaveProperty("next_cursor");
});

test("a state narrows the list", async () => {
  expect((await list("?state=live")).ids).toEqual(current);
  expect((await list("?state=creating")).ids).toEqual([]);
  expect((await list("?state=paused")).ids).toEqual([]);
});

test("external_id matches exactly, also together with a state", async () => {
  expect((await list("?external_id=twice")).ids).toEqual(current.slice(1));
  expect((await list("?external_id=twice&state=live&limit=1")).ids).toEqual(current.slice(1, 2));
  expect((await list("?external_id=twic")).ids).toEqual([]);
  expect((await list("?external_id=gone-1")).ids).toEqual([]);
});

test("the limit applies; above 500 it is 500", async () => {
  expect((await list("?limit=2")).ids).toEqual(current.slice(0, 2));
  expect((await list("?limit=100000")).status).toBe(200);
});

test("history pages to its end without a gap or a repeat", async () => {
  const first = await list("?state=ended&limit=2");
  expect(first.ids).toEqual(ended.slice(0, 2));
  const second = await list(`?state=ended&limit=2&cursor=${first.body.next_cursor}`);
  expect(second.ids).toEqual(ended.slice(2, 4));
  const third = await list(`?state=ended&limit=2&cursor=${second.body.next_cursor}`);
  expect(third.ids).toEqual(ended.slice(4));
  expect(third.body).not.toHaveProperty("next_cursor");
});

test("an ended row is metadata only", async () => {
  const { body } = await list("?state=ended");
  expect(body.sessions.at(-1)).toEqual({
    session_id: ended.at(-1),
    state: "ended",
    created_at: expect.any(String),
    last_active_at: expect.any(String),
    ended_at: expect.any(String),
    end_reason: "shell_exit",
    size: "small",
    vcpus: 1,
    mem_mb: 1024,
    labels: { n: "0" },
    external_id: "gone-0",
    project_id: expect.any(String),
  });
});

describe("refuses", () => {
  test.each([
    ["?state=destroyed", /^state: must be one of "live", "paused", "creating", "ended", got "destroyed"$/],
    ["?state=", /^state: /],
    ["?state=live&state=live", /^state: .*got an array of 2$/],
    ["?limit=0", /^limit: must be a whole number of at least 1, got "0"$/],
    ["?limit=-1", /^limit: /],
    ["?limit=1.5", /^limit: /],
    ["?limit=ten", /^limit: /],
    ["?limit=1&limit=2", /^limit: must be given once/],
    ["?cursor=x", /^cursor: is accepted together with state=ended only/],
    ["?state=live&cursor=x", /^cursor: is accepted/],
    ["?state=ended&cursor=x", /^cursor: must be the next_cursor/],
    ["?state=ended&cursor=", /^cursor: must be the next_cursor/],
    ["?state=ended&external_id=x", /^external_id: cannot be combined/],
    ["?external_id=%00", /^external_id: must not contain control/],
    [`?external_id=${"x".repeat(257)}`, /^external_id: must be at most 256 characters long/],
    ["?external_id=%ff", /^external_id: must be percent-encoded UTF-8$/],
    ["?external_id=%ED%A0%80", /^external_id: must be percent-encoded UTF-8$/],
    ["?external_id=%E4%BC", /^external_id: must be percent-encoded UTF-8$/],
    ["?external_id=5%", /^external_id: must be percent-encoded UTF-8$/],
    ["?external_id=%zz&state=live", /^external_id: must be percent-encoded UTF-8$/],
    ["?state=live&%ff=1", /^query: must be percent-encoded UTF-8$/],
    ["?a%0Ab=%ff", /^a b: must be percent-encoded UTF-8$/],
  ])("%s", async (query, message) => {
    const answer = await list(query);
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });
});

test("unknown query parameters are ignored", async () => {
  expect((await list("?no_such=1&limit=1")).status).toBe(200);
});

test("a changed cursor is refused", () => {
  const cursor = { at: new Date("2026-01-02T03:04:05.678Z"), id: randomId() };
  const text = encodeCursor(cursor);
  expect(decodeCursor(text, SESSION_ID_PATTERN)).toEqual(cursor);
  for (const wrong of [
    `${text}=`,
    text.slice(1),
    ` ${text}`,
    Buffer.from("1.2").toString("base64url"),
    "é",
  ]) {
    expect(() => decodeCursor(wrong, SESSION_ID_PATTERN)).toThrow(/^cursor: must be the next_cursor/);
  }
});

test("an empty external_id counts as absent", async () => {
  const { body } = await control.ask("POST /v1/sessions", { body: { external_id: "" } });
  expect(body).not.toHaveProperty("external_id");
  expect((await control.ask(`GET /v1/sessions/${body.session_id}`)).body).not.toHaveProperty("external_id");
  expect((await list("?external_id=")).ids).toEqual([]);
  await control.ask(`DELETE /v1/sessions/${body.session_id}`);
});

test("external_id is at most 256 characters, and its search knows no wildcards", async () => {
  const texts = ["x".repeat(256), "a_c", "abc", "a%c", "%", "'", "a\\_c"];
  const ids: Record<string, string> = {};
  for (const external_id of texts) ids[external_id] = await control.create({ external_id });
  for (const text of texts)
    expect((await list(`?external_id=${encodeURIComponent(text)}`)).ids).toEqual([ids[text]]);
  for (const text of ["_", "a%", "A_C", "a_", "a\\%c", "' or '1'='1"])
    expect((await list(`?external_id=${encodeURIComponent(text)}`)).ids).toEqual([]);
  for (const id of Object.values(ids)) await control.ask(`DELETE /v1/sessions/${id}`);
});

test("external_id is percent-decoded once, as UTF-8", async () => {
  const encoded = await control.create({ external_id: "a+b %41 ü伽" });
  expect((await list("?external_id=a%2Bb+%2541%20%C3%BC%E4%BC%BD")).ids).toEqual([encoded]);
  await control.ask(`DELETE /v1/sessions/${encoded}`);
});

describe("no session was used after it ended", () => {
  const entryOf = async (id: string) =>
    (await list("?state=ended")).body.sessions.find(
      (session: { session_id: string }) => session.session_id === id,
    );
  const expectInOrder = ({ last_active_at: used, ended_at: over }: Record<string, string>) =>
    expect([used, over]).toEqual([used, over].toSorted());

  test("not by the time of a clock that runs ahead", async () => {
    const id = await control.createLive();
    await control.sql.query(
      "update sessions set last_active_at = now() + interval '500 milliseconds' where id = $1",
      [id],
    );
    await control.ask(`DELETE /v1/sessions/${id}`);
    expectInOrder(await entryOf(id));
  });

  test("not by a command that its end broke off", async () => {
    const id = await control.createLive();
    control.node.onExec = (_call, output) => void output().stdout("x");
    const command = control.exec(id);
    await eventually(() => expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-1`));
    await control.ask(`DELETE /v1/sessions/${id}`);
    // While the command is still in flight, and after its activity is flushed.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expectInOrder(await entryOf(id));
    await new Promise((resolve) => setTimeout(resolve, 600));
    expectInOrder(await entryOf(id));
    await control.node.goDown();
    await command;
    await control.node.listen();
    expectInOrder(await entryOf(id));
  });
});
