/** Requests that Node would answer by itself, byte by byte, over TCP. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { type LoggedLine, recordingLog } from "../../test-support/recording-log.ts";
import { createApp } from "../app.ts";

const SESSION = `/v1/sessions/${"a".repeat(21)}`;
let control: Control;
let port: number;
beforeAll(async () => {
  control = await startControl();
  port = Number(new URL(await control.app.server.listen({ host: "127.0.0.1", port: 0 })).port);
});
afterAll(() => control.close());

/** Everything the server sends until it closes the connection. */
async function exchange(request: string | Buffer): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  // The server may close before it has read everything.
  socket.on("error", () => undefined);
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk));
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.write(request);
  await closed;
  return Buffer.concat(chunks).toString();
}

/** Lines of a request with `KEY` for the key; the connection is to be closed after it. */
function lines(...head: string[]): string {
  return `${[...head, "connection: close", "", ""].join("\r\n").replaceAll("KEY", control.key)}`;
}

interface Parsed {
  status: number;
  headers: Record<string, string>;
  body: { error: string; code: string };
}

function parse(answer: string): Parsed {
  const [head = "", body = ""] = answer.split("\r\n\r\n");
  const [first = "", ...rest] = head.split("\r\n");
  const headers = rest.map((line) => line.split(": ") as [string, string]);
  return {
    status: Number(first.split(" ")[1]),
    headers: Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value])),
    body: JSON.parse(body),
  };
}

async function expectRefusal(request: string | Buffer, status: number, code: string, error: RegExp) {
  const answer = parse(await exchange(request));
  expect(answer.body).toEqual({ error: expect.stringMatching(error), code });
  expect(answer.status).toBe(status);
  expect(answer.headers["x-request-id"]).toMatch(/^(req_[a-z0-9]{21}|mine)$/);
  expect(answer.headers["content-type"]).toBe("application/json; charset=utf-8");
  expect(answer.headers["cache-control"]).toBe("no-store");
  return answer;
}

const AUTH = "authorization: Bearer KEY";

describe("an expectation", () => {
  test("other than 100-continue is refused, under the caller's request id", async () => {
    const head = ["POST /v1/sessions HTTP/1.1", "host: x", "expect: foo", "x-request-id: mine"];
    const request = lines(...head, AUTH, "content-length: 2");
    const answer = await expectRefusal(request, 400, "validation", /^Expect: must be 100-continue/);
    expect(answer.headers["x-request-id"]).toBe("mine");
    await expectRefusal(lines(...head), 401, "unauthenticated", /^Authorization: /);
  });

  test("of 100-continue is met", async () => {
    const head = [`POST ${SESSION}/exec HTTP/1.1`, "host: x", "expect: 100-continue", AUTH];
    const answer = await exchange(`${lines(...head, "content-length: 2")}{}`);
    expect(answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 400 /);
    expect(answer).toContain("command: must be an array");
  });
});

describe("a Host header", () => {
  test("that is missing is asked for", async () => {
    await expectRefusal(lines("GET /v1/org HTTP/1.1", AUTH), 400, "validation", /^Host: is required/);
    await expectRefusal(lines("GET /v1/org HTTP/1.1"), 401, "unauthenticated", /^Authorization: /);
    await expectRefusal(lines("GET /v1/none HTTP/1.1", AUTH), 404, "not_found", /^no such path/);
  });

  test("that is there twice is refused", async () => {
    const twice = ["GET /v1/org HTTP/1.1", "host: x", "Host: x"];
    await expectRefusal(lines(...twice, AUTH), 400, "validation", /^Host: must be sent once/);
    await expectRefusal(lines(...twice), 401, "unauthenticated", /^Authorization: is required/);
  });

  test("is not asked of HTTP/1.0", async () => {
    expect(await exchange(lines("GET /v1/org HTTP/1.0", AUTH))).toMatch(/^HTTP\/1\.1 200 /);
  });
});

describe("two Authorization headers", () => {
  test.each([
    ["the same", AUTH],
    ["another", "AUTHORIZATION: Bearer viv_x"],
  ])("are no credential, though the second is %s", async (_title, second) => {
    for (const first of ["GET /v1/org HTTP/1.1", "GET /v1/none HTTP/1.1", "GET /v1/%zz HTTP/1.1"]) {
      const request = lines(first, "host: x", AUTH, second);
      await expectRefusal(request, 401, "unauthenticated", /^Authorization: must be sent once/);
    }
  });

  test("do not matter where none is asked for", async () => {
    expect(await exchange(lines("GET /v1/healthz HTTP/1.1", "host: x", AUTH, AUTH))).toMatch(
      /^HTTP\/1\.1 200 /,
    );
  });
});

describe("a body with a Content-Encoding", () => {
  const head = [`POST ${SESSION}/exec HTTP/1.1`, "host: x", "content-length: 2"];

  test.each(["gzip", "br", "identity, gzip", ""])(
    "of %j is refused by the header's name",
    async (encoding) => {
      const request = `${lines(...head, `content-encoding: ${encoding}`, AUTH)}{}`;
      await expectRefusal(request, 400, "validation", /^Content-Encoding: must be identity/);
    },
  );

  test("of identity is read", async () => {
    const request = `${lines(...head, "content-encoding: Identity", AUTH)}{}`;
    await expectRefusal(request, 400, "validation", /^command: must be an array/);
  });
});

test.each([
  ["hangs up", (socket: Socket) => socket.destroy()],
  ["breaks the connection", (socket: Socket) => socket.resetAndDestroy()],
])("a client that %s while it sends a body is no failure of the server", async (_title, leave) => {
  const logged: LoggedLine[] = [];
  const app = await createApp(control.settings, recordingLog(logged));
  const url = new URL(await app.server.listen({ host: "127.0.0.1", port: 0 }));
  const arrived = once(app.server.server, "request");
  const socket = connect(Number(url.port), "127.0.0.1");
  const head = ["POST /v1/sessions HTTP/1.1", "host: x", AUTH, "content-length: 100"];
  socket.write(`${lines(...head)}{"name":`);
  const [incoming] = (await arrived) as [IncomingMessage];
  // Its body is read once its key has been looked up.
  await eventually(() => expect(incoming.readableFlowing).not.toBeNull());
  await new Promise((resolve) => setTimeout(resolve, 200));
  leave(socket);
  await eventually(() =>
    expect(logged.map(({ text }) => text).join("\n")).toMatch(/^request body: .* closed/m),
  );
  await app.close();
  expect(logged.filter(({ level }) => level !== "info" && level !== "debug")).toEqual([]);
  expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
});

const NO_HTTP: [title: string, request: string | Buffer][] = [
  ["words", "hello there\r\n\r\n"],
  ["a request line without a path", "GET HTTP/1.1\r\nhost: x\r\n\r\n"],
  ["a request line of an unknown method", "FETCH /v1/org HTTP/1.1\r\nhost: x\r\n\r\n"],
  ["a version that does not exist", "GET /v1/org HTTP/9.9\r\nhost: x\r\n\r\n"],
  ["the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  ["the hello of TLS", Buffer.from([0x16, 0x03, 0x01, 0x00, 0x05, 0x01, 0x00, 0x00, 0x01, 0x03])],
  ["a path with bytes that are not encoded", "GET /v1/sessions/\u00fc HTTP/1.1\r\nhost: x\r\n\r\n"],
  ["a query with bytes that are not encoded", "GET /v1/sessions?a=\u00fc HTTP/1.1\r\nhost: x\r\n\r\n"],
  ["a header without a colon", "GET /v1/org HTTP/1.1\r\nhost\r\n\r\n"],
  [
    "two lengths of one body",
    "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
  ],
];

test.each(NO_HTTP)("%s is refused as no HTTP", async (_title, request) => {
  await expectRefusal(request, 400, "validation", /^the request is not valid HTTP\/1\.1$/);
});

test("a chunked body that breaks its framing is refused", async () => {
  const head = lines("POST /v1/sessions HTTP/1.1", "host: x", AUTH, "transfer-encoding: chunked");
  await expectRefusal(`${head}zz\r\n`, 400, "validation", /^the request is not valid HTTP\/1\.1$/);
});

test("headers over 16 KiB are refused with the limit", async () => {
  const request = lines("GET /v1/org HTTP/1.1", "host: x", `x-long: ${"x".repeat(17_000)}`);
  await expectRefusal(request, 400, "validation", /^headers: must be at most 16384 bytes/);
});

test("CONNECT is an unknown path, and the connection is closed after the answer", async () => {
  const head = ["CONNECT example.com:443 HTTP/1.1", "host: example.com:443"];
  const answer = await expectRefusal(
    `${head.join("\r\n")}\r\n${AUTH}\r\n\r\n`.replace("KEY", control.key),
    404,
    "not_found",
    /^no such path: CONNECT example\.com:443/,
  );
  expect(answer.headers.connection).toBe("close");
  await expectRefusal(`${head.join("\r\n")}\r\n\r\n`, 401, "unauthenticated", /^Authorization: /);
});

test.each([
  ["OPTIONS * HTTP/1.1", 404, "not_found"],
  ["TRACE /v1/org HTTP/1.1", 405, "method_not_allowed"],
  ["QUERY /v1/org HTTP/1.1", 405, "method_not_allowed"],
  ["GET http://elsewhere/v1/none HTTP/1.1", 404, "not_found"],
])("%s is answered as any other request", async (first, status, code) => {
  await expectRefusal(lines(first, "host: x", AUTH), status, code, /./);
});

test.each([
  [
    "a WebSocket",
    ["upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="],
  ],
  ["HTTP/2", ["upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"]],
])("an upgrade to %s of an unknown path is 404 or 401", async (_title, headers) => {
  const head = ["GET /v1/nothing HTTP/1.1", "host: x", "connection: Upgrade", ...headers];
  await expectRefusal(lines(...head, AUTH), 404, "not_found", /^no such path: GET \/v1\/nothing/);
  await expectRefusal(lines(...head), 401, "unauthenticated", /^Authorization: /);
});
