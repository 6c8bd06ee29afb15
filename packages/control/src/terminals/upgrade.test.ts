/** The handshake of both WebSocket endpoints: every refusal is an ordinary answer, before the upgrade. */
import { connect as connectTcp } from "node:net";
import { LIMITS } from "@vivarium/contract/api";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { addressOf, connect, openPty, refused, streamOf } from "../../test-support/terminal-client.ts";
import { createApp } from "../app.ts";

let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  id = await control.createLive({ on_pty_detach: "keep_live" });
});
afterEach(() => {
  control.node.onStart = () => {};
  control.node.onStream = (_call, accept) => void accept();
});
afterAll(() => control.close());

const UNKNOWN = "b".repeat(21);

describe.each(["pty", "tunnel"])("GET …/%s", (kind) => {
  const path = (session = id) => `/v1/sessions/${session}/${kind}`;

  test("answers 101 with the request id, and negotiates neither subprotocol nor extension", async () => {
    const client = connect(control, path(), {
      headers: { "x-request-id": "mine-1" },
      protocols: ["tty", "other"],
    });
    client.webSocket.on("error", () => {});
    await eventually(() => expect(client.responseHeaders["x-request-id"]).toBe("mine-1"));
    expect(client.responseHeaders).not.toHaveProperty("sec-websocket-protocol");
    expect(client.responseHeaders).not.toHaveProperty("sec-websocket-extensions");
    client.webSocket.terminate();
  });

  test.each([
    ["without a credential", { key: null }, 401, "unauthenticated"],
    ["with an unknown credential", { key: `viv_${"x".repeat(40)}` }, 401, "unauthenticated"],
  ])("%s is refused before anything else", async (_title, options, status, code) => {
    const answer = await refused(control, path(UNKNOWN), options);
    expect([answer.status, answer.body.code]).toEqual([status, code]);
  });

  test("is not found for another organisation, nor for an unknown session", async () => {
    const foreign = await refused(control, path(), { key: await control.addKey() });
    const unknown = await refused(control, path(UNKNOWN));
    expect([foreign.status, foreign.body]).toEqual([unknown.status, unknown.body]);
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
  });

  test("is answered alike for a destroyed session and an unknown one", async () => {
    const past = await control.createLive();
    await control.ask(`DELETE /v1/sessions/${past}`);
    const [ended, unknown] = [await refused(control, path(past)), await refused(control, path(UNKNOWN))];
    expect([ended.status, ended.body]).toEqual([404, unknown.body]);
  });

  test("a refusal is an envelope with its length and its request id, and ends the connection", async () => {
    const { headers, body } = await refused(control, path(UNKNOWN), {
      headers: { "x-request-id": "mine-2" },
    });
    expect(headers).toMatchObject({
      "content-type": "application/json; charset=utf-8",
      "content-length": String(JSON.stringify(body).length),
      connection: "close",
      "x-request-id": "mine-2",
    });
  });

  test("a plain GET is 400", async () => {
    const answer = await control.ask(`GET ${path()}`);
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(/^Upgrade: /);
  });

  test("a request for another protocol is 400", async () => {
    const answer = await refused(control, path(), { headers: { upgrade: "h2c" } });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  });

  test.each(["8", "12", "14", undefined])("version %s is 400, and the answer names 13", async (version) => {
    const answer = await refused(control, path(), { headers: { "sec-websocket-version": version } });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.headers["sec-websocket-version"]).toBe("13");
  });

  test.each(["", "short", undefined])("the key %j is 400", async (key) => {
    const answer = await refused(control, path(), { headers: { "sec-websocket-key": key } });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(/^Sec-WebSocket-Key: /);
  });

  test("another method is 405", async () => {
    const answer = await control.ask(`POST ${path()}`);
    expect([answer.status, answer.headers.allow]).toEqual([405, "GET"]);
  });

  test("syntax is checked before the session", async () => {
    const answer = await refused(control, path(UNKNOWN), { headers: { "sec-websocket-version": "12" } });
    expect(answer.status).toBe(400);
  });

  test("a session that has failed is 409", async () => {
    control.node.onStart = () => {
      throw new Refusal("internal");
    };
    const failed = await control.create();
    await control.until(failed, "failed");
    const answer = await refused(control, path(failed));
    expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
  });

  test("a paused session is woken inside the handshake", async () => {
    const paused = await control.createLive({ on_pty_detach: "keep_live" });
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    const client = await connect(control, path(paused)).opened();
    expect((await control.ask(`GET /v1/sessions/${paused}`)).body.state).toBe("live");
    expect((await streamOf(control, paused)).machineId).toBe(`${paused}-2`);
    client.webSocket.terminate();
  });

  test("a wake that the ceiling refuses is 429, and the session stays paused", async () => {
    const key = await control.addKey({ ceiling: 1 });
    const paused = await control.createLive({}, key);
    await control.ask(`POST /v1/sessions/${paused}/pause`, { key });
    await control.createLive({}, key);
    const answer = await refused(control, path(paused), { key });
    expect([answer.status, answer.body.code]).toEqual([429, "key_concurrency_exceeded"]);
    expect(answer.headers["retry-after"]).toBe("5");
    expect((await control.ask(`GET /v1/sessions/${paused}`, { key })).body.state).toBe("paused");
  });

  test("a wake that the disk gate refuses is 503", async () => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    control.node.onStart = () => {
      throw new Refusal("disk_pressure");
    };
    const answer = await refused(control, path(paused));
    expect([answer.status, answer.body.code]).toEqual([503, "node_disk_pressure"]);
  });

  test("a machine that does not answer is 503, a node that breaks off 502", async () => {
    control.node.onStream = () => {
      throw new Refusal("agent_unavailable");
    };
    const silent = await refused(control, path());
    expect([silent.status, silent.body.code]).toEqual([503, "session_unavailable"]);
    const asked = Promise.withResolvers<void>();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStream = () => {
      asked.resolve();
      return promise;
    };
    const broken = refused(control, path());
    await asked.promise;
    control.node.cutStreams();
    resolve();
    const answer = await broken;
    expect([answer.status, answer.body.code]).toEqual([502, "bad_gateway"]);
  });

  test("a machine that gave way under the attach is followed", async () => {
    const moving = await control.createLive({ on_pty_detach: "keep_live" });
    let refusals = 0;
    control.node.onStream = async (_call, accept) => {
      if (refusals++ > 0) return void accept();
      await control.ask(`POST /v1/sessions/${moving}/pause`);
      throw new Refusal("machine_gone");
    };
    const client = await connect(control, path(moving)).opened();
    expect((await streamOf(control, moving)).machineId).toBe(`${moving}-2`);
    client.webSocket.terminate();
  });
});

test.each([
  ["rows=0", "rows"],
  ["rows=1001", "rows"],
  ["cols=0", "cols"],
  ["cols=65535", "cols"],
  ["rows=2.5", "rows"],
  ["rows=24.0", "rows"],
  ["rows=0x18", "rows"],
  ["rows=1e2", "rows"],
  ["rows=%2024", "rows"],
  ["rows=", "rows"],
  ["cols=x", "cols"],
  ["rows=24&rows=24", "rows"],
  ["term=a%20b", "term"],
  [`term=${"x".repeat(65)}`, "term"],
  ["colorterm=", "colorterm"],
  ["cmd=", "cmd"],
  ["cmd=ls&cmd=%00", "cmd"],
  ["terminal=Main", "terminal"],
  ["rows=%ff", "rows"],
])("pty?%s is 400 and names the parameter", async (query, field) => {
  const answer = await refused(control, `/v1/sessions/${UNKNOWN}/pty?${query}`);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error.startsWith(field)).toBe(true);
});

test("the query's defaults, and what it asks for, reach the machine with the session's environment", async () => {
  const own = await control.createLive({ env: { A: "1", TERM: "dumb" }, on_pty_detach: "keep_live" });
  const plain = await openPty(control, own);
  expect((await streamOf(control, own)).spec).toEqual({
    env: { VIVARIUM_SESSION_ID: own, A: "1", TERM: "xterm-256color" },
    rows: 24,
    cols: 80,
  });
  const asked = await openPty(
    control,
    own,
    "?rows=1000&cols=1&term=screen&colorterm=truecolor&cmd=sh&cmd=-c&cmd=echo%20hi&cwd=sub&terminal=main",
  );
  expect((await streamOf(control, own)).spec).toEqual({
    argv: ["sh", "-c", "echo hi"],
    cwd: "sub",
    env: { VIVARIUM_SESSION_ID: own, A: "1", TERM: "screen", COLORTERM: "truecolor" },
    rows: 1000,
    cols: 1,
    name: "main",
  });
  const one = await openPty(control, own, "?cmd=top");
  expect((await streamOf(control, own)).spec).toMatchObject({ argv: ["top"] });
  for (const { webSocket } of [plain, asked, one]) webSocket.terminate();
});

test("a cwd that is missing is 400, as for a command", async () => {
  control.node.onStream = () => {
    throw new Refusal("cwd_not_found");
  };
  const answer = await refused(control, `/v1/sessions/${id}/pty?cwd=nowhere`);
  expect([answer.status, answer.body]).toEqual([
    400,
    { code: "validation", error: "cwd: no such file or directory" },
  ]);
});

test("a seventeenth terminal is 429 with Retry-After", async () => {
  control.node.onStream = () => {
    throw new Refusal("terminal_limit");
  };
  const answer = await refused(control, `/v1/sessions/${id}/pty`);
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
    429,
    "rate_limited",
    "1",
  ]);
});

test("data may follow the request, and the 101, at once", async () => {
  control.node.onStream = (_call, accept) => void accept().send(1, "first");
  const socket = connectTcp(Number(addressOf(control).split(":")[1]), "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk));
  const message = Buffer.from([0x82, 0x83, 0, 0, 0, 0, 1, 0x68, 0x69]);
  const head = [
    `GET /v1/sessions/${id}/pty HTTP/1.1`,
    "host: x",
    `authorization: Bearer ${control.key}`,
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    "",
    "",
  ].join("\r\n");
  socket.write(Buffer.concat([Buffer.from(head), message]));
  await eventually(() =>
    expect(Buffer.concat(chunks).toString("latin1")).toMatch(/^HTTP\/1.1 101[\s\S]*first/),
  );
  const { stream } = await streamOf(control, id);
  await eventually(() => expect(stream.received.map(({ payload }) => payload.toString())).toContain("hi"));
  socket.destroy();
});

test("a client that leaves, or breaks, during the handshake leaves nothing behind", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStream = async (_call, accept) => {
    await promise;
    accept();
  };
  const leavers = [1, 2].map(() => connect(control, `/v1/sessions/${id}/pty`));
  await eventually(() => expect(control.node.upgradedCount).toBeGreaterThanOrEqual(2));
  for (const { webSocket } of leavers) webSocket.terminate();
  resolve();
  await eventually(() => expect(control.node.upgradedCount).toBe(0));
  expect((await control.exec(id)).status).toBe(200);
});

test("an upgrade of another path is answered as any request to it", async () => {
  const answer = await refused(control, "/v1/org");
  expect(answer.status).toBe(200);
  expect((await refused(control, "/v1/nothing")).status).toBe(404);
});

test("a handshake waits for its session 25 s at most: then 409 for one that is created, 503 for one that wakes", async () => {
  const waking = await control.createLive();
  await control.ask(`POST /v1/sessions/${waking}/pause`);
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const creating = await control.create();
  expect(LIMITS.upgradeWaitMs).toBe(25_000);
  const app = await createApp({ ...control.settings, upgradeWaitMs: 1_000 }, silentLog);
  await app.server.listen({ host: "127.0.0.1", port: 0 });
  const hasty: Control = Object.assign(Object.create(control), { app });
  const [early, late, tunnel] = await Promise.all([
    refused(hasty, `/v1/sessions/${creating}/pty`),
    refused(hasty, `/v1/sessions/${waking}/pty`),
    refused(hasty, `/v1/sessions/${waking}/tunnel`),
  ]);
  resolve();
  expect([early.status, early.body.code, early.headers["retry-after"]]).toEqual([
    409,
    "session_not_live",
    "1",
  ]);
  expect([late.status, late.body.code, late.headers["retry-after"]]).toEqual([
    503,
    "session_unavailable",
    "2",
  ]);
  expect([tunnel.status, tunnel.body.code]).toEqual([503, "session_unavailable"]);
  expect(early.body.error).toBe("the session is still being created after 1 s; try again");
  // The wake itself continues.
  await control.until(waking, "live");
  await app.close();
});

test("a session that is being created is waited for", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const creating = await control.create({ on_pty_detach: "keep_live" });
  const opening = openPty(control, creating);
  setTimeout(resolve, 300);
  const client = await opening;
  expect((await control.ask(`GET /v1/sessions/${creating}`)).body.state).toBe("live");
  client.webSocket.terminate();
});

test("a suspended organisation opens nothing", async () => {
  const key = await control.addKey();
  const { org_id: orgId } = (await control.ask("GET /v1/org", { key })).body;
  await control.sql.query("update orgs set suspended = true where id = $1", [orgId]);
  await eventually(async () => {
    const answer = await refused(control, `/v1/sessions/${UNKNOWN}/pty`, { key });
    expect([answer.status, answer.body.code]).toEqual([403, "forbidden"]);
  });
});
