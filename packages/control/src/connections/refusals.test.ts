/** Requests for Connections that are refused: the same at a create, a POST and a PUT, and without a change of anything. */
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());

const CANARY = "canary-31f0";
const connection = (more: object = {}) => ({
  name: "api",
  origin: "https://api.example.com",
  authentication: { type: "bearer", secret: CANARY },
  allow: { methods: ["GET"], paths: ["/v1/*"] },
  ...more,
});
/** Another Connection than the one of each session here. */
const second = (more: object = {}) => connection({ name: "two", origin: "https://two.example.com", ...more });
const bound = (more: object = {}) => control.createLive({ connections: [connection()], ...more });
const post = (id: string, body: object) => control.ask(`POST /v1/sessions/${id}/connections`, { body });
const put = (id: string, body: object) => control.ask(`PUT /v1/sessions/${id}/connections/api`, { body });
const outcome = ({ status, body }: Answer) => [status, body.code];
/** Outcomes of a POST and a PUT that are right in themselves. */
const ofBoth = async (id: string, more: object = {}) => [
  outcome(await post(id, second(more))),
  outcome(await put(id, connection(more))),
];

interface Fault {
  field: string;
  wrong: Record<string, unknown>;
}

const repeated = (count: number, text = "a") => text.repeat(count);
const list = (count: number, item: (n: number) => string) => Array.from({ length: count }, (_, n) => item(n));
const each = <T>(field: string, values: readonly T[], wrong: (value: T) => Fault["wrong"]): Fault[] =>
  values.map((value) => ({ field, wrong: wrong(value) }));
const headed = (header_name: unknown) => ({
  authentication: { type: "header", secret: CANARY, header_name },
});

const FAULTS: Fault[] = [
  ...each(
    "origin",
    [
      ...["http://api.example.com", "wss://api.example.com", "api.example.com", "", null, 7],
      ...[":0", ":80", ":8443", ":65536", ":", "/v1", "?a=b", "/?a", "#a", "/#"].map(
        (end) => `https://api.example.com${end}`,
      ),
      ...["user@api.example.com", "u:p@api.example.com", "*.example.com", "*", "api", "localhost"].map(
        (host) => `https://${host}`,
      ),
      ...["1.1.1.1", "10.0.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "2130706433", "127.1"].map(
        (address) => `https://${address}`,
      ),
      ...["0x7f.1", "[::1]", "[fd00::1]", "\uff11.1.1.1"].map((address) => `https://${address}`),
    ],
    (origin) => ({ origin }),
  ),
  ...each("name", ["API", "", ".a", "a b", "\u00e9", repeated(64), null], (name) => ({ name })),
  ...each("ttl_seconds", [0, -1, 1.5, 86_401, "60", null], (ttl_seconds) => ({ ttl_seconds })),
  { field: "extra", wrong: { extra: 1 } },
  { field: "secret", wrong: { secret: CANARY } },

  ...each("authentication", [undefined, null, [], CANARY], (authentication) => ({ authentication })),
  ...each("authentication.type", ["basic", "Bearer", "", null, undefined], (type) => ({
    authentication: { type, secret: CANARY },
  })),
  ...each(
    "authentication.secret",
    ["", " s", "s ", "s\ts", "s\r\nX: y", "\u00fc", repeated(8_193), 7, null, undefined],
    (secret) => ({ authentication: { type: "bearer", secret } }),
  ),
  { field: "authentication.key", wrong: { authentication: { type: "bearer", secret: CANARY, key: "a" } } },
  ...each("authentication.header_name", ["X-Key", "", null], (header_name) => ({
    authentication: { type: "bearer", secret: CANARY, header_name },
  })),
  ...each("authentication.header_name", [undefined, null, "", "X Key", "X:Key", "\u00e9"], headed),
  ...each(
    "authentication.header_name",
    [
      ...["Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Upgrade", "TE"],
      ...["Trailer", "Expect", "Cookie", "Accept-Encoding", "Proxy-Authorization", "Proxy-Connection"],
      ...["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-HTTP-Method-Override", "Sec-Fetch"],
      ...["host", "HTTP2-Settings", "Keep-Alive", "X.Forwarded_For", "_Content_Length", repeated(65)],
    ],
    headed,
  ),

  ...each("allow", [null, [], "GET"], (allow) => ({ allow })),
  { field: "allow.path", wrong: { allow: { methods: ["GET"], path: ["/"] } } },
  ...each("allow.methods", [null, "GET", list(17, (n) => `M${n}`)], (methods) => ({ allow: { methods } })),
  ...each("allow.methods[0]", ["CONNECT", "connect", "TRACE", "*", "", "GET\t", "G T", 7], (method) => ({
    allow: { methods: [method] },
  })),
  ...each("allow.paths", [null, "/", list(65, (n) => `/${n}`)], (paths) => ({ allow: { paths } })),
  ...each(
    "allow.paths[0]",
    [
      ...["v1", "", "*", "https://api.example.com/v1", "/a b", "/\u00e9", `/${repeated(1_024)}`, 7],
      ...["/a?b", "/a#b", "/a;b", "/a\\b", "/a//b", "/a/../b", "/a/./b", "/..", "/a/."],
      ...["/a%2fb", "/a%2Fb", "/a%5cb", "/a%5Cb", "/a%2eb", "/%2e%2e/b", "/a%00b", "/a%zz", "/a%"],
      ...["/%c0%ae%c0%ae/b", "/a%e4b"],
    ],
    (path) => ({ allow: { paths: [path] } }),
  ),
];

describe("a Connection that breaks a rule is 400, names the field, repeats no secret and changes nothing", () => {
  /** The refusals that were answered in another way. */
  async function notRefused(ask: (wrong: Fault["wrong"]) => Promise<Answer>, at = ""): Promise<unknown[]> {
    const others: unknown[] = [];
    for (const { field, wrong } of FAULTS) {
      const { status, body, text } = await ask(wrong);
      const isNamed = String(body.error).startsWith(`${at}${field}: `);
      if (status !== 400 || body.code !== "validation" || !isNamed || text.includes(CANARY))
        others.push([wrong, status, body.error]);
    }
    return others;
  }

  test("at a create", async () => {
    const before = control.node.machines.size;
    const others = await notRefused(
      (wrong) => control.ask("POST /v1/sessions", { body: { connections: [connection(wrong)] } }),
      "connections[0].",
    );
    expect(others).toEqual([]);
    expect(control.node.machines.size).toBe(before);
    expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
  });

  test.each([
    ["POST", (id: string, wrong: object) => post(id, second(wrong))],
    ["PUT", (id: string, wrong: object) => put(id, connection(wrong))],
  ])("at a %s", async (_verb, ask) => {
    const id = await bound();
    const state = async () => ({
      listed: (await control.ask(`GET /v1/sessions/${id}/connections`)).body,
      sent: control.node.connections.get(id),
    });
    const before = await state();
    expect(await notRefused((wrong) => ask(id, wrong))).toEqual([]);
    expect(await state()).toEqual(before);
    await control.ask(`DELETE /v1/sessions/${id}`);
  });

  test("and what is at every limit at once is taken, at all three", async () => {
    const most = {
      authentication: { type: "header", secret: repeated(8_192), header_name: repeated(64) },
      allow: { methods: list(16, (n) => `m${n}`), paths: list(32, (n) => `/${n}/`.padEnd(1_024, "a")) },
      ttl_seconds: 86_400,
    };
    const id = await control.createLive({ connections: [connection(most)] });
    const longest = second({ ...most, name: repeated(63) });
    const [posted, replaced] = [await post(id, longest), await put(id, connection(most))];
    expect([posted.status, replaced.status]).toEqual([201, 200]);
    expect(posted.body.allow.methods).toEqual(list(16, (n) => `M${n}`));
  });
});

test("a policy that was tightened since covers no new Connection and no replacement of the origin", async () => {
  const id = await bound();
  const narrow = (allow: string[]) =>
    control.ask(`POST /v1/sessions/${id}/egress`, { body: { mode: "deny", allow } });
  for (const allow of [[], ["example.com"], ["api.example.com:80", "two.example.com:80"]]) {
    await narrow(allow);
    for (const { status, body } of [await post(id, second()), await put(id, connection())]) {
      expect([status, body.code]).toEqual([400, "validation"]);
      expect(body.error).toMatch(/^origin: must be allowed by the session's egress policy/);
    }
  }
  await narrow(["*.example.com"]);
  expect(await ofBoth(id)).toEqual([
    [201, undefined],
    [200, undefined],
  ]);
});

test("the time of a Connection is bounded by what is left of its session's, not by what it had", async () => {
  const id = await bound({ max_lifetime_ms: 7_200_000 });
  await control.sql.query("update sessions set created_at = created_at - interval '1 hour' where id = $1", [
    id,
  ]);
  for (const { status, body } of [
    await post(id, second({ ttl_seconds: 3_601 })),
    await put(id, connection({ ttl_seconds: 3_601 })),
  ]) {
    expect([status, body.code]).toEqual([400, "validation"]);
    expect(body.error).toMatch(/^ttl_seconds: must be at most 3[0-9]{3}, the session's remaining lifetime/);
  }
  const end = Date.parse((await control.ask(`GET /v1/sessions/${id}`)).body.created_at) + 7_200_000;
  for (const { body } of [await post(id, second()), await put(id, connection())])
    expect(Date.parse(body.expires_at)).toBeLessThanOrEqual(end);
});

test("without the key-encryption key of the session both are 503, and nothing is stored", async () => {
  const id = await bound();
  const rows = async () =>
    (await control.sql.query("select name, generation, sealed from connections where session_id = $1", [id]))
      .rows;
  const before = await rows();
  const sealWith = (kek: string) =>
    control.sql.query("update sessions set kek_id = $2 where id = $1", [id, kek]);
  await sealWith("kek_gone");
  expect(await ofBoth(id)).toEqual(Array(2).fill([503, "unavailable"]));
  expect(await rows()).toEqual(before);
  await sealWith("kek_1");
  expect((await ofBoth(id)).map(([status]) => status)).toEqual([201, 200]);
});

describe("no Connection is bound or replaced", () => {
  test("while the session is being created", async () => {
    let letStart = () => {};
    control.node.onStart = () => new Promise<void>((resolve) => (letStart = resolve));
    const id = await control.create({ connections: [connection()] });
    expect(await ofBoth(id)).toEqual(Array(2).fill([409, "session_not_live"]));
    control.node.onStart = () => {};
    letStart();
    await control.until(id, "live");
  });

  test("once the session has failed", async () => {
    control.node.onStart = () => {
      throw new Refusal("internal");
    };
    const id = await control.create({ connections: [connection()] });
    await control.until(id, "failed");
    control.node.onStart = () => {};
    expect(await ofBoth(id)).toEqual(Array(2).fill([409, "conflict"]));
  });

  test("once the session's lifetime is over", async () => {
    const id = await bound();
    await control.ask(`POST /v1/sessions/${id}/pause`);
    await control.sql.query("update sessions set state = 'lifetime_expired' where id = $1", [id]);
    expect(await ofBoth(id)).toEqual(Array(2).fill([410, "session_ended"]));
  });

  test("once the session was destroyed", async () => {
    const id = await bound();
    await control.ask(`DELETE /v1/sessions/${id}`);
    expect(await ofBoth(id)).toEqual(Array(2).fill([404, "not_found"]));
  });
});
