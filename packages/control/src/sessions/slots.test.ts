/** The ceiling that the operator configures for organisations without one of their own. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl({ sessionCeiling: 2 });
});
afterEach(async () => {
  await control.sql.query("update orgs set concurrent_sessions = null");
  await control.destroyAll();
});
afterAll(() => control.close());

const create = (key = control.key) => control.ask("POST /v1/sessions", { key });
const ceilings = async (key = control.key) => {
  const { body } = await control.ask("GET /v1/org", { key });
  return [body.limits.concurrent_sessions, body.capacity.limits.running];
};
const MORE = "; pause or destroy one first, or ask the operator for more (VIV_CONCURRENT_SESSIONS)";

test("a create, a wake and a fork past the configured ceiling are refused with the name of the setting", async () => {
  expect(await ceilings()).toEqual([2, 2]);
  const paused = await control.createLive();
  await control.ask(`POST /v1/sessions/${paused}/pause`);
  const live = await control.createLive();
  await control.createLive();
  const reached = `your organisation may have 2 sessions creating or live at once and has 2${MORE}`;
  for (const call of ["POST /v1/sessions", `POST /v1/sessions/${paused}/resume`]) {
    const { status, headers, body } = await control.ask(call);
    expect([status, headers["retry-after"], body]).toEqual([
      429,
      "5",
      { code: "account_concurrency_exceeded", error: reached },
    ]);
  }
  const { body } = await control.ask(`POST /v1/sessions/${live}/fork`, { body: { count: 3 } });
  expect(body.error).toBe(
    `your organisation may have 2 sessions creating or live at once and has 2, and this asks for 3 more${MORE}`,
  );
});

test("a ceiling of the organisation's own counts instead, and its refusal does not name the setting", async () => {
  for (const own of [1, 3]) {
    await control.sql.query("update orgs set concurrent_sessions = $1", [own]);
    expect(await ceilings()).toEqual([own, own]);
    for (let made = 0; made < own; made++) expect((await create()).status).toBe(200);
    expect((await create()).body.error).toBe(
      `your organisation may have ${own} sessions creating or live at once and has ${own}; pause or destroy one first`,
    );
    await control.destroyAll();
  }
});

test("a key's ceiling stays below the organisation's, and each organisation has its own count", async () => {
  const orgId = (await control.ask("GET /v1/whoami")).body.org_id;
  const key = await control.addKey({ orgId, ceiling: 1 });
  const codes = [await create(key), await create(key), await create(), await create()];
  expect(codes.map(({ body }) => body.code)).toEqual([
    undefined,
    "key_concurrency_exceeded",
    undefined,
    "account_concurrency_exceeded",
  ]);
  expect((await create(await control.addKey())).status).toBe(200);
});

test("a start writes no ceiling, so that a setting that was changed or removed counts from the next start", async () => {
  const running = async (sessionCeiling: number) => {
    const app = await createApp({ ...control.settings, sessionCeiling }, silentLog);
    const headers = { authorization: `Bearer ${control.key}` };
    const answer = await app.server.inject({ url: "/v1/org", headers });
    await app.close();
    return answer.json().limits.concurrent_sessions;
  };
  expect(await Promise.all([running(5), running(5), running(5)])).toEqual([5, 5, 5]);
  expect(await running(10)).toBe(10);
  expect(await ceilings()).toEqual([2, 2]);
  const { rows } = await control.sql.query(
    "select distinct concurrent_sessions from orgs where name = 'default'",
  );
  expect(rows).toEqual([{ concurrent_sessions: null }]);
});
