/** Every way to ask wrongly: the specified code, a sentence that names the field, and nothing changed. */
import { ErrorBody } from "@vivarium/contract/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Ask, ask, client, service } from "../support/http.ts";

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

/** What bad requests must not change: which sessions there are, and the record of ours. */
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

const entries = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, "v"]));

/** field named by the answer | body of POST /v1/sessions */
const CREATES: [field: string, body: unknown][] = [
  ["size", { size: "huge" }],
  ["size", { size: 5 }],
  ["max_lifetime_ms", { max_lifetime_ms: 86_400_001 }],
  ["max_lifetime_ms", { max_lifetime_ms: -1 }],
  ["max_lifetime_ms", { max_lifetime_ms: 1.5 }],
  ["max_lifetime_ms", { max_lifetime_ms: "1000" }],
  ["idle_timeout_ms", { idle_timeout_ms: 3_600_001 }],
  ["idle_timeout_ms", { idle_timeout_ms: true }],
  ["paused_ttl_ms", { paused_ttl_ms: -1, max_lifetime_ms: 1000 }],
  ["paused_ttl_ms", { paused_ttl_ms: 0.5 }],
  ["paused_ttl_ms", { paused_ttl_ms: 2 ** 53 }],
  ["name", { name: "" }],
  ["name", { name: "n".repeat(129) }],
  ["name", { name: "line\nbreak" }],
  ["name", { name: 7 }],
  ["labels", { labels: [] }],
  ["labels", { labels: { ["k".repeat(129)]: "v" } }],
  ["labels", { labels: { k: "v".repeat(513) } }],
  ["labels", { labels: { k: 1 } }],
  ["labels", { labels: entries(65) }],
  ["external_id", { external_id: "x".repeat(257) }],
  ["external_id", { external_id: "nul\0" }],
  ["template", { template: 1 }],
  ["egress", { egress: {} }],
  ["egress", { egress: { mode: "alow" } }],
  ["egress", { egress: { mode: "allow", hosts: [] } }],
  ["egress", { egress: null }],
  ["no_sudo", { no_sudo: null }],
  ["no_sudo", { no_sudo: "true" }],
  ["on_pty_detach", { on_pty_detach: "sleep" }],
  ["on_detach", { on_pty_detach: "pause", on_detach: "destroy" }],
  ["destroy_on_completion", { destroy_on_completion: 1 }],
  ["artifacts", { artifacts: { paths: "/workspace/out" } }],
  ["artifacts", { artifacts: { paths: [], extra: 1 } }],
  ["command_capture", { command_capture: "all" }],
  ["env", { env: { "1X": "v" } }],
  ["env", { env: { X: 1 } }],
  ["env", { env: { X: "a\0b" } }],
  ["env", { env: { ["X".repeat(129)]: "v" } }],
  ["env", { env: { X: "v".repeat(65_537) } }],
  ["connections", { connections: Array.from({ length: 17 }, () => ({})) }],
  ["egress_cap_bytes", { egress_cap_bytes: -1 }],
  ["wake_on_http", { wake_on_http: "no" }],
];

describe("POST /v1/sessions refuses", () => {
  test.each(CREATES)("%s (%#)", async (field, body) => {
    const answer = await ask("/v1/sessions", { body });
    // Of two fields that exclude each other either may be named.
    const start =
      field === "on_detach" && String(answer.body.error).startsWith("on_pty") ? "on_pty_detach" : field;
    expectRefusal(answer, 400, "validation", start);
  });

  test("what is unknown to it: template, volume, project", async () => {
    expectRefusal(await ask("/v1/sessions", { body: { template: "no-such-template" } }), 404, "not_found");
    expectRefusal(await ask("/v1/sessions", { body: { project_id: `prj_${NOBODY}` } }), 404, "not_found");
  });

  test("secrets, while no encryption key is configured, without asking to come back", async () => {
    const answer = await ask("/v1/sessions", { body: { secrets: { TOKEN: "hidden-value" } } });
    expectRefusal(answer, 503, "unavailable");
    expect(answer.headers.get("retry-after")).toBeNull();
    expect(JSON.stringify(answer.body)).not.toContain("hidden-value");
  });

  test("a name that is taken", async () => {
    expectRefusal(await ask("/v1/sessions", { body: { name: "bad-input" } }), 409, "conflict");
  });

  test("an Idempotency-Key that is none, or that came with another body", async () => {
    for (const key of ["with space", "k".repeat(256), "per%cent"]) {
      const answer = await ask("/v1/sessions", { body: {}, headers: { "idempotency-key": key } });
      expectRefusal(answer, 400, "validation");
    }
    const headers = { "idempotency-key": `key-${Date.now()}` };
    const first = await ask("/v1/sessions", { body: { labels: { a: "1" } }, headers });
    const again = await ask("/v1/sessions", { body: { labels: { a: "1" }, name: null }, headers });
    const other = await ask("/v1/sessions", { body: { labels: { a: "2" } }, headers });
    await client.sessions.delete(first.body.session_id as string);
    expect(again).toMatchObject({ status: 200, body: { session_id: first.body.session_id } });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(first.headers.get("idempotent-replayed")).toBeNull();
    expectRefusal(other, 409, "conflict");
  });
});

/** field named by the answer | body of POST /v1/sessions/{id}/exec */
const EXECS: [field: string, body: unknown][] = [
  ["command", {}],
  ["command", { command: null }],
  ["command", { command: "ls -l" }],
  ["command", { command: [] }],
  ["command", { command: [""] }],
  ["command", { command: ["ls", 7] }],
  ["command", { command: ["a\0b"] }],
  ["command", { command: Array.from({ length: 1025 }, () => "x") }],
  ["cwd", { command: ["pwd"], cwd: 7 }],
  ["cwd", { command: ["pwd"], cwd: "nul\0" }],
  ["timeout_ms", { command: ["true"], timeout_ms: 3_600_001 }],
  ["timeout_ms", { command: ["true"], timeout_ms: -1 }],
  ["timeout_ms", { command: ["true"], timeout_ms: "10" }],
];

describe("POST /v1/sessions/{id}/exec refuses", () => {
  test.each(EXECS)("%s (%#)", async (field, body) => {
    for (const query of ["", "?stream=true"]) {
      expectRefusal(await ask(`/v1/sessions/${sessionId}/exec${query}`, { body }), 400, "validation", field);
    }
  });

  test("a cwd that is not there, no directory or closed to the user, in stable words", async () => {
    for (const query of ["", "?stream=true"]) {
      const path = `/v1/sessions/${sessionId}/exec${query}`;
      const missing = await ask(path, { body: { command: ["pwd"], cwd: "/no/such" } });
      expectRefusal(missing, 400, "validation", "cwd");
      expect(missing.body.error).toContain("no such file or directory");
      const file = await ask(path, { body: { command: ["pwd"], cwd: "/etc/passwd" } });
      expectRefusal(file, 400, "validation", "cwd");
      expect(file.body.error).toContain("not a directory");
      const closed = await ask(path, { body: { command: ["pwd"], cwd: "/root" } });
      expectRefusal(closed, 400, "validation", "cwd: the user may not enter it");
    }
  });

  test("a stream flag that is no boolean, or given twice", async () => {
    for (const query of ["stream=maybe", "stream=true&stream=false"]) {
      const answer = await ask(`/v1/sessions/${sessionId}/exec?${query}`, { body: { command: ["true"] } });
      expectRefusal(answer, 400, "validation", "stream");
    }
  });

  test("a session that nobody has, whatever its id looks like", async () => {
    for (const id of [NOBODY, "A".repeat(21), "short", `${NOBODY}x`, "..%2F..%2Fetc"]) {
      const answer = await ask(`/v1/sessions/${id}/exec`, { body: { command: ["true"] } });
      expectRefusal(answer, 404, "not_found");
    }
  });
});

/** field named by the answer | body of POST /v1/sessions/exec */
const RUNS: [field: string, body: unknown][] = [
  ["language", { code: "1" }],
  ["language", { language: "ruby", code: "1" }],
  ["language", { language: ["python"], code: "1" }],
  ["code", { language: "python" }],
  ["code", { language: "python", code: 1 }],
  ["dependencies", { language: "python", code: "1", dependencies: "requests" }],
  ["dependencies", { language: "python", code: "1", dependencies: ["--upgrade"] }],
  ["dependencies", { language: "python", code: "1", dependencies: [""] }],
  ["dependencies", { language: "python", code: "1", dependencies: ["d".repeat(257)] }],
  ["dependencies", { language: "python", code: "1", dependencies: Array.from({ length: 65 }, () => "x") }],
  ["timeout_ms", { language: "python", code: "1", timeout_ms: 3_600_001 }],
  ["size", { language: "python", code: "1", size: "tiny" }],
  ["no_sudo", { language: "python", code: "1", no_sudo: null }],
  ["env", { language: "python", code: "1", env: { A: "b" } }],
  ["secrets", { language: "python", code: "1", secrets: { A: "b" } }],
  ["egress", { language: "python", code: "1", egress: { mode: "deny" } }],
  ["connections", { language: "python", code: "1", connections: [] }],
];

describe("POST /v1/sessions/exec refuses", () => {
  test.each(RUNS)("%s (%#)", async (field, body) => {
    expectRefusal(await ask("/v1/sessions/exec", { body }), 400, "validation", field);
  });
});

/** field named by the answer | query of GET /v1/sessions */
const LISTS: [field: string, query: string][] = [
  ["state", "state=bogus"],
  ["state", "state=destroyed"],
  ["state", "state=live&state=paused"],
  ["limit", "limit=0"],
  ["limit", "limit=-5"],
  ["limit", "limit=ten"],
  ["limit", "limit=1.5"],
  ["cursor", "cursor=abc"],
  ["cursor", "state=ended&cursor=%00%ff"],
  ["external_id", "state=ended&external_id=x"],
  ["external_id", "external_id=%ff"],
];

describe("GET /v1/sessions and DELETE refuse", () => {
  test.each(LISTS)("%s (%#)", async (field, query) => {
    expectRefusal(await ask(`/v1/sessions?${query}`), 400, "validation", field);
  });

  test("a limit over the cap is the cap, not an error", async () => {
    expect(await ask("/v1/sessions?limit=100000")).toMatchObject({ status: 200 });
  });

  test("a reason for the end that is none", async () => {
    const answer = await ask(`/v1/sessions/${sessionId}?reason=boredom`, { method: "DELETE" });
    expectRefusal(answer, 400, "validation", "reason");
    expect(await ask(`/v1/sessions/${sessionId}`)).toMatchObject({ status: 200, body: { state: "live" } });
  });
});

/** title | body of POST /v1/sessions, byte by byte */
const BODIES: [title: string, raw: string | Uint8Array<ArrayBuffer>][] = [
  ["malformed JSON", '{"size": "small"'],
  ["an array", "[]"],
  ["a string", '"small"'],
  ["null", "null"],
  ["a number", "7"],
  ["invalid UTF-8", new Uint8Array([0x7b, 0x22, 0x6e, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d])],
  ["a lone surrogate in a name", '{"name": "\\ud800"}'],
];

describe("a body", () => {
  test.each(BODIES)("that is %s is refused", async (_title, raw) => {
    expectRefusal(await ask("/v1/sessions", { raw }), 400, "validation");
  });

  test("in an encoding is refused by the header's name", async () => {
    const headers = { "content-encoding": "gzip" };
    const answer = await ask("/v1/sessions", { raw: "{}", headers });
    expectRefusal(answer, 400, "validation", "Content-Encoding");
  });

  test("of more than 1 MiB is refused", async () => {
    const raw = JSON.stringify({ junk: "x".repeat(1024 * 1024) });
    expectRefusal(await ask("/v1/sessions", { raw }), 400, "payload_too_large");
    expectRefusal(await ask(`/v1/sessions/${sessionId}/exec`, { raw }), 400, "payload_too_large");
  });

  test("with a __proto__ changes nothing but fails or is ignored", async () => {
    const answer = await ask("/v1/sessions", { raw: '{"size": "nope", "__proto__": {"size": "small"}}' });
    expectRefusal(answer, 400, "validation");
  });
});

/** title | authorization header */
const CREDENTIALS: [title: string, authorization: string | null][] = [
  ["none", null],
  ["an unknown key", `Bearer viv_${"a".repeat(32)}`],
  ["no key after the scheme", "Bearer "],
  ["another scheme", `Basic ${btoa(`user:${"x".repeat(10)}`)}`],
  ["a key without a scheme", `viv_${"a".repeat(32)}`],
  ["two keys", "Bearer viv_a viv_b"],
];

describe("a request with a wrong credential", () => {
  test.each(CREDENTIALS)("(%s) is 401 on every path but healthz", async (_title, authorization) => {
    const requests: [string, Ask][] = [
      ["/v1/sessions", {}],
      ["/v1/sessions", { body: { size: "huge" } }],
      [`/v1/sessions/${sessionId}`, { method: "DELETE" }],
      [`/v1/sessions/${sessionId}/exec`, { body: { command: ["true"] } }],
      ["/v1/no/such/path", {}],
    ];
    for (const [path, options] of requests)
      expectRefusal(await ask(path, { ...options, authorization }), 401, "unauthenticated");
    expect((await ask("/v1/healthz", { authorization })).status).toBe(200);
  });

  test("is not helped by a key in the query or in another header", async () => {
    const path = `/v1/sessions?api_key=${service.apiKey}&access_token=${service.apiKey}`;
    const headers = { "x-api-key": service.apiKey, cookie: `key=${service.apiKey}` };
    expectRefusal(await ask(path, { authorization: null, headers }), 401, "unauthenticated");
  });
});

describe("a path", () => {
  test("that is unknown, or has a slash too many, is 404", async () => {
    for (const path of ["/v1/nothing", "/v1/sessions/", "/v2/sessions", "/", "/v1//sessions"])
      expectRefusal(await ask(path), 404, "not_found");
  });

  test("asked with a wrong method is 405 and says which are right", async () => {
    const wrong: [string, string, string[]][] = [
      ["PUT", "/v1/sessions", ["GET", "POST"]],
      ["POST", "/v1/healthz", ["GET"]],
      ["PUT", `/v1/sessions/${sessionId}`, ["GET", "DELETE"]],
      ["GET", `/v1/sessions/${sessionId}/exec`, ["POST"]],
    ];
    for (const [method, path, allowed] of wrong) {
      const answer = await ask(path, { method });
      expectRefusal(answer, 405, "method_not_allowed");
      const allow = (answer.headers.get("allow") ?? "").split(/,\s*/);
      for (const one of allowed) expect(allow).toContain(one);
    }
  });

  test("answers under the request id it was given, or one of its own", async () => {
    const kept = await ask("/v1/nothing", { headers: { "x-request-id": "mine-1.2:3_4" } });
    expect(kept.headers.get("x-request-id")).toBe("mine-1.2:3_4");
    const replaced = await ask("/v1/nothing", { headers: { "x-request-id": "not mine!" } });
    expect(replaced.headers.get("x-request-id")).toMatch(/^req_[a-z0-9]{21}$/);
  });
});
