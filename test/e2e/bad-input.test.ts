/**
 * One bad request of each kind, against the whole service: the specified code, a sentence that names the field, and
 * nothing changed. Every field is covered in `packages/control/src`, beside the code that refuses it.
 */
import { ErrorBody } from "@vivarium/contract/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Answer, type Ask, ask, client } from "../support/http.ts";

const NOBODY = "a".repeat(21);
const ALL_STATES_LIMIT = 500;
let sessionId: string;
let before: string;

beforeAll(async () => {
  sessionId = (await client.sessions.create({ name: "bad-input" })).session_id;
  await client.sessions.waitUntilLive(sessionId);
  before = await everything();
});

afterAll(async () => {
  const after = await everything();
  await client.sessions.delete(sessionId);
  expect(after).toBe(before);
});

/** State that bad requests must not change: the list of sessions, and the record of ours. */
async function everything(): Promise<string> {
  const { sessions } = await client.sessions.list({ limit: ALL_STATES_LIMIT });
  const rows = sessions.map(({ session_id, state, name }) => ({ session_id, state, name }));
  return JSON.stringify(rows);
}

function expectRefusal(answer: Answer, status: number, code: string, start?: string): void {
  expect(answer.body).toEqual({ error: expect.any(String), code });
  expect(answer.status).toBe(status);
  const { error } = ErrorBody.parse(answer.body);
  expect(error.length).toBeLessThanOrEqual(500);
  expect(error).toMatch(/^[^\n]{8,}$/);
  expect(error).not.toMatch(/\/packages\/|node_modules|at \w+ \(/);
  if (start !== undefined) expect(error.slice(0, start.length)).toBe(start);
  expect(answer.headers.get("x-request-id")).toMatch(/^[A-Za-z0-9._:-]{1,128}$/);
  expect(answer.headers.get("content-type")).toBe("application/json; charset=utf-8");
}

/** title | path, SESSION for ours | request | status, code | beginning of the sentence */
const REFUSED: [string, string, Ask, number, string, string?][] = [
  ["a field with an unknown value", "/v1/sessions", { body: { size: "huge" } }, 400, "validation", "size"],
  ["a field of another type", "/v1/sessions", { body: { labels: [] } }, 400, "validation", "labels"],
  ["a template that is not there", "/v1/sessions", { body: { template: "no-such" } }, 404, "not_found"],
  ["a name that is taken", "/v1/sessions", { body: { name: "bad-input" } }, 409, "conflict"],
  ["a command that is no list", "SESSION/exec", { body: { command: "ls -l" } }, 400, "validation", "command"],
  [
    "a streamed exec without a command",
    "SESSION/exec?stream=true",
    { body: {} },
    400,
    "validation",
    "command",
  ],
  [
    "a session that nobody has",
    `/v1/sessions/${NOBODY}/exec`,
    { body: { command: ["true"] } },
    404,
    "not_found",
  ],
  [
    "a run in an unknown language",
    "/v1/sessions/exec",
    { body: { language: "ruby", code: "1" } },
    400,
    "validation",
    "language",
  ],
  ["a query with an unknown value", "/v1/sessions?state=bogus", {}, 400, "validation", "state"],
  [
    "an unknown reason for an end",
    "SESSION?reason=boredom",
    { method: "DELETE" },
    400,
    "validation",
    "reason",
  ],
  ["malformed JSON", "/v1/sessions", { raw: '{"size": "small"' }, 400, "validation"],
  [
    "a body that is not UTF-8",
    "/v1/sessions",
    { raw: new Uint8Array([0x22, 0xff, 0x22]) },
    400,
    "validation",
  ],
  [
    "a body that is too long",
    "SESSION/exec",
    { raw: `"${"x".repeat(1024 * 1024)}"` },
    400,
    "payload_too_large",
  ],
  [
    "a header of a wrong form",
    "/v1/sessions",
    { body: {}, headers: { "idempotency-key": "a b" } },
    400,
    "validation",
  ],
  ["no credential", "SESSION", { method: "DELETE", authorization: null }, 401, "unauthenticated"],
  ["an unknown key", "/v1/none", { authorization: `Bearer viv_${"a".repeat(32)}` }, 401, "unauthenticated"],
  ["an unknown path", "/v1//sessions", {}, 404, "not_found"],
  ["a wrong method", "/v1/sessions", { method: "PUT" }, 405, "method_not_allowed"],
];

test.each(REFUSED)("%s is refused", async (_what, path, options, status, code, start) => {
  expectRefusal(
    await ask(path.replace("SESSION", `/v1/sessions/${sessionId}`), options),
    status,
    code,
    start,
  );
});

test("a cwd that is not there, no directory or closed to the user is refused in stable words", async () => {
  for (const query of ["", "?stream=true"]) {
    for (const [cwd, words] of [
      ["/no/such", "no such file or directory"],
      ["/etc/passwd", "not a directory"],
      ["/root", "cwd: the user may not enter it"],
    ]) {
      const path = `/v1/sessions/${sessionId}/exec${query}`;
      const answer = await ask(path, { body: { command: ["pwd"], cwd } });
      expectRefusal(answer, 400, "validation", "cwd");
      expect(answer.body.error).toContain(words);
    }
  }
});
