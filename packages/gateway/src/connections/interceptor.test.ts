/** Requests of guests through a Connection: what the origin receives, and what the guest gets. */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ask2,
  askOver,
  type BoundWorld,
  connection,
  HOST,
  reportsOf,
  SECRET,
  startBoundWorld,
  valuesIn,
} from "../../test-support/bound-world.ts";
import { inTime } from "../../test-support/in-time.ts";
import { a, deny } from "../../test-support/world.ts";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
let world: BoundWorld;
let generation = 1;

beforeAll(async () => {
  world = await startBoundWorld("127.31.41");
});

beforeEach(async () => {
  generation += 1;
  await world.bind({ generation });
  world.origin.received.length = 0;
  world.origin.answer = (_request, response) => void response.end("ok");
  world.reports().length = 0;
});

afterAll(() => world.close());

describe("an allowed request", () => {
  test("reaches the origin with the credential, and its answer the guest", async () => {
    const reply = await world.ask("/v1/items?q=1");
    expect(reply).toMatchObject({ status: 200, body: "ok", isWhole: true });
    expect(world.origin.received).toMatchObject([
      { method: "GET", url: "/v1/items?q=1", httpVersion: "1.1" },
    ]);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
    expect(valuesIn(world.origin.received[0] as never, "host")).toEqual([HOST]);
  });

  test("over HTTP/2 reaches the origin over HTTP/2 with the credential", async () => {
    const session = await world.session2();
    const reply = await ask2(session, { ":method": "POST", "content-type": "a/b" }, "body");
    expect(reply).toMatchObject({ status: 200, body: "ok", isWhole: true });
    expect(world.origin.received).toMatchObject([{ method: "POST", httpVersion: "2.0", body: "body" }]);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
    session.destroy();
  });

  test("carries its body, of any length and framing", async () => {
    const body = Buffer.alloc(3_000_000, "x");
    for (const headers of [{ "Content-Length": body.length }, { "Transfer-Encoding": "chunked" }]) {
      const reply = await world.ask("/v1/upload", { method: "POST", headers, body });
      expect(reply.status).toBe(200);
      expect(world.origin.received.pop()?.body.length).toBe(body.length);
    }
  });

  test("keeps its connection for further requests, each with the credential", async () => {
    const before = world.origin.connections;
    const requests = ["a", "b", "c"].map((path) => `GET /${path} HTTP/1.1\r\nHost: ${HOST}\r\n`);
    const answers = await world.send(`${requests.join("\r\n")}Connection: close\r\n\r\n`);
    expect(answers.match(/HTTP\/1.1 200 /g)).toHaveLength(3);
    expect(world.origin.received.map((request) => valuesIn(request, "authorization").length)).toEqual([
      1, 1, 1,
    ]);
    expect(world.origin.connections - before).toBe(1);
  });

  test("is reported with its rule and without its query", async () => {
    await world.ask("/v1/items?q=1", { method: "POST", body: "12345" });
    expect(await reportsOf(world, 1)).toMatchObject([
      {
        ...{ session_id: "ses_1", connection: "api", host: HOST, event: "used", method: "POST" },
        ...{ path: "/v1/items", status: 200, rule: 0, bytes_out: 5, bytes_in: 2, is_sent: true },
      },
    ]);
    expect(JSON.stringify(world.reports())).not.toContain(SECRET);
  });
});

test("the egress log has an intercepted connection with its bytes and the origin's address", async () => {
  await pause(50);
  world.egressLog.take();
  const connections = async (atLeast: number) =>
    (await world.entries(atLeast)).filter(({ kind }) => kind === "tls");
  await world.ask();
  // Beside the line of the request.
  expect(await connections(2)).toMatchObject([
    {
      kind: "tls",
      host: HOST,
      address: "127.31.41.80",
      port: 443,
      verdict: "allowed",
      reason: "name_allowed",
    },
  ]);
  const session = await world.session2();
  await ask2(session, {});
  session.destroy();
  const [line] = await connections(2);
  expect(line?.bytes_out).toBeGreaterThan(200);
  expect(line?.bytes_in).toBeGreaterThan(200);
});

describe("a request against the rules", () => {
  test("of another path or method is refused with 403, and nothing reaches the origin", async () => {
    generation += 1;
    await world.bind({ generation, methods: ["GET"], paths: ["/v1/items", "/v1/sub/*"] });
    for (const [method, path] of [
      ["POST", "/v1/items"],
      ["GET", "/v1/other"],
      ["GET", "/v1/sub"],
      ["GET", "/V1/items"],
      ["PATCH", "/v1/sub/a"],
    ] as const) {
      const reply = await world.ask(path, { method });
      expect(reply.status, path).toBe(403);
      expect(JSON.parse(reply.body)).toMatchObject({ code: "connection_rule_denied" });
    }
    expect(world.origin.received).toEqual([]);
    expect((await world.ask("/v1/sub/a")).status).toBe(200);
    expect(world.origin.received).toHaveLength(1);
    expect((await reportsOf(world, 6)).map(({ event }) => event)).toEqual([
      ...Array(5).fill("denied"),
      "used",
    ]);
  });

  test("is refused when the lists of methods and paths are empty", async () => {
    for (const empty of [{ methods: [] }, { paths: [] }]) {
      generation += 1;
      await world.bind({ generation, ...empty });
      expect((await world.ask()).status).toBe(403);
    }
    expect(world.origin.received).toEqual([]);
  });
});

describe("an ambiguous request is refused with 400, and nothing reaches the origin:", () => {
  const host = `Host: ${HOST}\r\n`;
  test.each<[string, string]>([
    ["dot segments", `GET /a/../b HTTP/1.1\r\n${host}\r\n`],
    ["an escaped slash", `GET /a%2fb HTTP/1.1\r\n${host}\r\n`],
    ["an absolute target", `GET https://${HOST}/a HTTP/1.1\r\n${host}\r\n`],
    ["an absolute target of another host", `GET https://evil.example/a HTTP/1.1\r\n${host}\r\n`],
    ["no Host", "GET /a HTTP/1.1\r\n\r\n"],
    ["another Host", "GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n"],
    ["another port", `GET /a HTTP/1.1\r\nHost: ${HOST}:8443\r\n\r\n`],
    ["two Hosts", `GET /a HTTP/1.1\r\n${host}${host}\r\n`],
    ["a Host with a user", `GET /a HTTP/1.1\r\nHost: ${HOST}@evil.example\r\n\r\n`],
    ["CONNECT", `CONNECT ${HOST}:443 HTTP/1.1\r\n${host}\r\n`],
    ["TRACE", `TRACE /a HTTP/1.1\r\n${host}\r\n`],
    ["a lower-case method", `get /a HTTP/1.1\r\n${host}\r\n`],
    ["a method with a tab", `GET\t /a HTTP/1.1\r\n${host}\r\n`],
    ["two lengths", `POST /a HTTP/1.1\r\n${host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`],
    [
      "a length and chunks",
      `POST /a HTTP/1.1\r\n${host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    ],
    ["another coding", `POST /a HTTP/1.1\r\n${host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ["a folded header", `GET /a HTTP/1.1\r\n${host}X-A: b\r\n Authorization: evil\r\n\r\n`],
    ["a space before the colon", `GET /a HTTP/1.1\r\n${host}Authorization : evil\r\n\r\n`],
    ["an expectation that nobody serves", `GET /a HTTP/1.1\r\n${host}Expect: more\r\n\r\n`],
    ["TE", `GET /a HTTP/1.1\r\n${host}TE: gzip\r\n\r\n`],
    ["a WebSocket", `GET /a HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`],
    ["h2c", `GET /a HTTP/1.1\r\n${host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n`],
    ["HTTP/1.0", `GET /a HTTP/1.0\r\n${host}\r\n`],
  ])("%s", async (_, bytes) => {
    const end = "GET /last HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
    const answer = await world.send(bytes.includes("POST") ? bytes : `${bytes}${end}`);
    expect(answer).toMatch(/^HTTP\/1.1 400 /);
    expect(answer).toContain('"code":"connection_request_invalid"');
    expect(world.origin.received).toEqual([]);
  });

  test("and the same connection with a plain request gets through", async () => {
    const answer = await world.send(`GET /a HTTP/1.1\r\n${host}Connection: close\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1.1 200 /);
    expect(world.origin.received).toHaveLength(1);
  });
});

describe("a guest's own copy of the header", () => {
  test.each<[string, string[]]>([
    ["in the same case", ["Authorization", "evil"]],
    ["in another case", ["aUTHORIZATION", "evil"]],
    ["twice", ["authorization", "evil", "Authorization", "evil"]],
    ["empty", ["Authorization", ""]],
    [
      "with a separator behind it",
      ["Authorization_", "evil", "Authorization-", "evil", "authorization.", "evil"],
    ],
    ["with a separator before it", ["_Authorization", "evil", "-authorization", "evil"]],
    ["named by Connection", ["Connection", "authorization, host, keep-alive", "Authorization", "evil"]],
  ])("%s is dropped, and the origin sees ours alone", async (_, headers) => {
    const reply = await world.ask("/a", { headers: ["Host", HOST, ...headers] });
    expect(reply.status).toBe(200);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
    expect(world.origin.text()).not.toContain("evil");
  });

  test.each([
    ...["x-api-key", "X_API_KEY", "x_api-key", "X-Api_Key", "X.Api.Key", "x.api_key", "X_Api_Key_"],
    ...["X~Api!Key", "X-Api-Key."],
  ])("as %s is dropped as well", async (name) => {
    generation += 1;
    await world.bind({ generation, header: { name: "X-Api-Key", value: SECRET } });
    await world.ask("/a", {
      headers: {
        ...{ [name]: "evil", Authorization: "the guest's own", Connection: "x-api-key" },
        ...{ "X-Api-Keys": "more", "X-Api": "less", XApiKey: "joined" },
      },
    });
    const [received] = world.origin.received;
    expect(valuesIn(received as never, "x-api-key")).toEqual([SECRET]);
    expect(valuesIn(received as never, "authorization")).toEqual(["the guest's own"]);
    for (const [other, value] of Object.entries({ "x-api-keys": "more", "x-api": "less", xapikey: "joined" }))
      expect(valuesIn(received as never, other), other).toEqual([value]);
    expect(world.origin.text()).not.toContain("evil");
  });

  test("in HTTP/2 is dropped, also twice and with separators", async () => {
    const session = await world.session2();
    const copies = { authorization: "evil", authorization_: "evil", "-authorization": "evil" };
    await ask2(session, { ...copies, "authorization.": ["evil", "evil"], te: "trailers" });
    const [received] = world.origin.received;
    expect(world.origin.text()).not.toContain("evil");
    expect(valuesIn(received as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
    expect(valuesIn(received as never, "te")).toEqual(["trailers"]);
    session.destroy();
  });
});

test("a guest that offers neither HTTP/1.1 nor HTTP/2 gets no handshake, and one that offers nothing gets HTTP/1.1", async () => {
  await expect(world.open({ alpn: ["h3"] })).rejects.toThrow(/no application protocol/);
  const socket = await world.open({ alpn: [] });
  expect(await askOver(socket, "/a")).toMatchObject({ status: 200 });
  expect(world.origin.received).toHaveLength(1);
});

test("headers that name another method, path, client or proxy are dropped, others pass", async () => {
  const dropped = {
    ...{ "X-HTTP-Method-Override": "DELETE", x_http_method_override: "DELETE", "X-Original-URL": "/admin" },
    ...{
      "X.HTTP.Method.Override": "DELETE",
      "X.Forwarded.Host": "a.example",
      X_Rewrite_Url_: "/admin",
      Proxy: "x",
    },
    ...{
      Forwarded: "for=1",
      "X-Forwarded-For": "1.2.3.4",
      "Proxy-Authorization": "x",
      "Accept-Encoding": "br",
    },
  };
  await world.ask("/a", { headers: { ...dropped, "X-Other": "1", Cookie: "a=b" } });
  const [received] = world.origin.received;
  for (const name of Object.keys(dropped).filter((name) => name !== "Accept-Encoding"))
    expect(valuesIn(received as never, name), name).toEqual([]);
  expect(valuesIn(received as never, "accept-encoding")).toEqual(["identity"]);
  expect(valuesIn(received as never, "x-other")).toEqual(["1"]);
  expect(valuesIn(received as never, "cookie")).toEqual(["a=b"]);
});

test("a redirect is passed on and not followed, and what the guest asks elsewhere has no credential", async () => {
  world.origin.answer = (_request, response) =>
    void response.writeHead(302, { Location: "https://evil.example/x" }).end();
  expect(await world.ask("/a")).toMatchObject({
    status: 302,
    headers: { location: "https://evil.example/x" },
  });
  expect(world.origin.received).toHaveLength(1);
});

test("a guest that waits for 100 Continue gets it once the request is allowed", async () => {
  const ask = (path: string) =>
    world.send(
      `POST ${path} HTTP/1.1\r\nHost: ${HOST}\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi`,
    );
  expect(await ask("/a")).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 200 /);
  expect(world.origin.received).toMatchObject([{ body: "hi" }]);
  expect(valuesIn(world.origin.received[0] as never, "expect")).toEqual([]);
  expect(await ask("/a/../b")).toMatch(/^HTTP\/1.1 400 /);
});

test("a bound host over plain HTTP gets nothing of the credential, and is not redirected to it", async () => {
  let heard = "";
  const outside = createServer((request, response) => {
    heard += JSON.stringify(request.rawHeaders);
    response.end("plain");
  });
  outside.listen(world.outside.http, "127.31.41.81");
  await once(outside, "listening");
  const host = "plain.example";
  const first = deny(HOST, "other.example", "x.example");
  await world.bind({}, { connections: [connection({ generation }), connection({ host, name: "plain" })] });
  await world.apply({ first: deny(...first.allow, host) });
  world.names.script = (name) => [a(name, name === host ? "127.31.41.81" : "127.31.41.80")];
  const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
  const chunks: Buffer[] = [];
  socket.on("data", (chunk) => chunks.push(chunk)).on("error", () => {});
  socket.write(`GET /a HTTP/1.1\r\nHost: ${host}\r\nAuthorization: own\r\nConnection: close\r\n\r\n`);
  await inTime(new Promise((resolve) => socket.once("close", resolve)), "the end of a connection");
  await world.apply({ first });
  outside.close();
  expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1.1 200 [\s\S]*plain$/);
  expect(heard).toContain('"Authorization","own"');
  expect(heard).not.toContain(SECRET.slice(0, 10));
  expect(world.origin.received).toEqual([]);
});

describe("only the bound origin of this session is intercepted:", () => {
  test("another name is passed through to its own certificate", async () => {
    await expect(world.open({ servername: "other.example" })).rejects.toThrow();
    const socket = await world.open({ servername: HOST });
    expect(socket.getPeerCertificate().issuer.CN).toBe("session authority");
    socket.destroy();
  });

  test("another session at the same host sees the origin's own certificate, and its requests have no credential", async () => {
    await world.apply({ first: deny(HOST, "other.example", "x.example"), second: deny(HOST) });
    const [, second] = world.hosts;
    await expect(world.open({ host: second })).rejects.toThrow();
    const opening = world.open({ host: second, ca: world.roots.certificatePem });
    await expect(opening).resolves.toBeDefined();
    const socket = await opening;
    expect((await askOver(socket, "/a")).status).toBe(200);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([]);
    socket.destroy();
  });

  test("a request over a name that is not bound never carries the credential, whatever its Host says", async () => {
    const roots = world.roots.certificatePem;
    const socket = await world.open({ servername: "other.example", ca: roots }).catch(() => undefined);
    expect(socket).toBeUndefined();
    expect(world.origin.text()).not.toContain(SECRET);
  });
});

test("a tombstone of a session that binds nothing else is refused over TLS of the session's authority", async () => {
  await world.bind(
    {},
    {
      connections: [connection({ generation })],
      tombstones: [{ name: "x", host: "x.example", state: "revoked" }],
    },
  );
  const socket = await world.open({ servername: "x.example" });
  const reply = await askOver(socket, "/a", { headers: { Host: "x.example" } });
  expect(reply.status).toBe(403);
  expect(JSON.parse(reply.body)).toMatchObject({ code: "connection_revoked" });
  socket.destroy();
});
