import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { inTime, until } from "../../test-support/in-time.ts";
import { a, deny, denyAll, startWorld, TestServer, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.2";
const seen: { method: string; url: string; headers: string[]; body: string }[] = [];
const evil = new TestServer();
let good: Server;
let world: World;

async function serveGood(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = "";
  for await (const chunk of incoming) body += chunk;
  seen.push({ method: incoming.method ?? "", url: incoming.url ?? "", headers: incoming.rawHeaders, body });
  if (incoming.url === "/endless") return void response.writeHead(200).write("and so on");
  response.writeHead(200, ["X-Served", "yes", "Set-Cookie", "a=1", "Set-Cookie", "b=2"]);
  response.end(`${incoming.method} ${body.length}`);
}

beforeAll(async () => {
  good = createServer((incoming, response) => void serveGood(incoming, response));
  good.on("upgrade", (incoming: IncomingMessage, socket: Socket) => {
    seen.push({ method: "UPGRADE", url: incoming.url ?? "", headers: incoming.rawHeaders, body: "" });
    if (incoming.url === "/cut") {
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\naaaa");
      return void setTimeout(() => socket.resetAndDestroy(), 50);
    }
    if (incoming.url === "/no")
      return void socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst",
    );
    socket.pipe(socket);
  });
  good.listen(0, `${PREFIX}.80`);
  await once(good, "listening");
  const http = (good.address() as AddressInfo).port;
  await evil.start(`${PREFIX}.81`, http);
  world = await startWorld(PREFIX, { http, tls: 1 });
});

beforeEach(async () => {
  // Open connections end with their machine, so that their log lines are not part of the next test.
  await world.apply({ withoutFirst: true });
  await new Promise((resolve) => setTimeout(resolve, 20));
  await world.entries(0);
  await world.apply({ first: deny("good.example") });
  world.names.asked.length = 0;
  world.names.script = (name) => [a(name, name === "good.example" ? `${PREFIX}.80` : `${PREFIX}.81`)];
  seen.length = 0;
  evil.connections = 0;
});

afterAll(async () => {
  good.closeAllConnections();
  good.close();
  evil.server.close();
  await world.close();
});

/** However it closes: `once` of node:events would fail with a reset. */
const closed = (socket: Socket) => new Promise((resolve) => socket.once("close", resolve));

/** The answer to these bytes, until the gateway closed the connection. */
async function say(bytes: string | Buffer, host = world.hosts[0]): Promise<string> {
  const socket = connect({ host, port: GATEWAY_PORTS.http });
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk.toString("latin1");
  });
  socket.on("error", () => {});
  socket.write(bytes);
  await inTime(closed(socket), "the end of a connection");
  return answer;
}

const get = (host: string, path = "/", more = "") => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
const last = (host: string, path = "/") => get(host, path, "Connection: close\r\n");

describe("a request to a host that the policy has", () => {
  test("is written anew to it, and its answer comes back", async () => {
    const answer = await say(last("good.example", "/a?b=c"));
    expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n/);
    expect(answer).toContain("X-Served: yes\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
    expect(answer).toMatch(/GET 0/);
    expect(seen).toMatchObject([
      { method: "GET", url: "/a?b=c", headers: expect.arrayContaining(["Host", "good.example"]) },
    ]);
    expect(await world.entries()).toMatchObject([
      {
        ...{ machine_id: "mch_1", kind: "http", host: "good.example", address: `${PREFIX}.80`, port: 80 },
        ...{ verdict: "allowed", reason: "name_allowed" },
      },
    ]);
  });

  test("may follow another one on the connection, also sent ahead, and have a body of either kind", async () => {
    const answer = await say(
      [
        get("good.example", "/1"),
        "POST /2 HTTP/1.1\r\nHost: GOOD.example.\r\nContent-Length: 5\r\n\r\nhello",
        "POST /3 HTTP/1.1\r\nHost: good.example:80\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        last("good.example", "/4"),
      ].join(""),
    );
    expect(answer.match(/HTTP\/1.1 200 OK/g)).toHaveLength(4);
    expect(seen.map(({ url, body }) => [url, body])).toEqual([
      ["/1", ""],
      ["/2", "hello"],
      ["/3", "abc"],
      ["/4", ""],
    ]);
  });

  test("may name it in its target, which is forwarded as a path", async () => {
    const target = "GET http://good.example/x HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n";
    expect(await say(target)).toMatch(/^HTTP\/1.1 200/);
    expect(seen[0]?.url).toBe("/x");
  });

  test("may be HTTP/1.0, ask before it sends, and carry megabytes", async () => {
    expect(await say("GET /old HTTP/1.0\r\nHost: good.example\r\n\r\n")).toMatch(/^HTTP\/1.1 200/);
    const big = request({
      ...{ host: world.hosts[0], port: GATEWAY_PORTS.http, method: "PUT", path: "/big", agent: false },
      headers: { host: "good.example", expect: "100-continue" },
    });
    big.flushHeaders();
    await once(big, "continue");
    big.end(Buffer.alloc(8 * 1024 * 1024, "x"));
    const [response] = await once(big, "response");
    expect(response.statusCode).toBe(200);
    response.resume();
    expect(seen.at(-1)?.body).toHaveLength(8 * 1024 * 1024);
  });

  test("may become a WebSocket once its server agrees, and may not when it does not", async () => {
    const upgrade = (path: string) =>
      get("good.example", path, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
    let heard = "";
    socket.on("data", (chunk) => {
      heard += chunk;
    });
    socket.write(`${upgrade("/ws")}early`);
    await until(() => heard.endsWith("firstearly"));
    expect(heard).toMatch(/^HTTP\/1.1 101 /);
    socket.write(" late");
    await until(() => heard.endsWith("firstearly late"));
    socket.end();
    await once(socket, "close");
    expect(await say(upgrade("/no"))).toMatch(/^HTTP\/1.1 403 .*no$/s);
    expect(seen.map(({ method, url }) => `${method} ${url}`)).toEqual(["UPGRADE /ws", "UPGRADE /no"]);
  });

  test("may be refused a WebSocket at length, and nothing of ours is mixed into what breaks off", async () => {
    const asked = get("good.example", "/cut", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
    expect(await say(asked)).toMatch(/^HTTP\/1.1 200 OK\r\n.*\r\n\r\naaaa$/s);
  });
});

describe("is refused, and the connection closed, with nothing at any other server and no question asked:", () => {
  const body = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  test.each<[string, string, number, string]>([
    ["a host outside the policy", get("evil.example"), 403, "name_not_allowed"],
    ["a host below the policy's", get("a.good.example"), 403, "name_not_allowed"],
    ["an address", get("127.31.2.81"), 403, "no_name"],
    ["no host", "GET / HTTP/1.1\r\n\r\n", 400, "no_name"],
    ["no host in HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", 400, "no_name"],
    ["two hosts", get("good.example", "/", "Host: evil.example\r\n"), 400, "malformed"],
    ["userinfo", get("good.example@evil.example"), 400, "malformed"],
    ["another port", get("good.example:8080"), 400, "malformed"],
    ["a target that differs", get("good.example", "http://evil.example/"), 400, "host_mismatch"],
    ["a target of another scheme", get("good.example", "https://good.example/"), 400, "malformed"],
    ["CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n", 400, "malformed"],
    [
      "h2c",
      get(
        "good.example",
        "/",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
      ),
      400,
      "malformed",
    ],
    ["h2c without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed"],
    ["length and coding", `POST / HTTP/1.1\r\nHost: good.example\r\n${body}`, 400, "malformed"],
    [
      "an unknown coding",
      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: xchunked\r\n\r\n",
      400,
      "malformed",
    ],
    ["a folded header", "GET / HTTP/1.1\r\nHost: good.example\r\nX: a\r\n b\r\n\r\n", 400, "malformed"],
    ["a bare line feed", "GET / HTTP/1.1\nHost: good.example\n\n", 400, "malformed"],
    ["a space before the colon", "GET / HTTP/1.1\r\nHost : good.example\r\n\r\n", 400, "malformed"],
    ["a NUL in a header", "GET / HTTP/1.1\r\nHost: good.example\r\nX: a\0b\r\n\r\n", 400, "malformed"],
    ["a head of 17 KiB", get("good.example", "/", `X: ${"a".repeat(17 * 1024)}\r\n`), 400, "malformed"],
    ["bytes that are no HTTP", "\x16\x03\x01\x00\x05hello", 400, "malformed"],
    [
      "a WebSocket with a body",
      get("good.example", "/", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n"),
      400,
      "malformed",
    ],
  ])("%s", async (_, bytes, status, reason) => {
    expect(await say(bytes)).toMatch(
      new RegExp(`^HTTP/1.1 ${status} .*Refused by the sandbox's gateway`, "s"),
    );
    expect(seen).toEqual([]);
    expect(evil.connections).toBe(0);
    expect(world.names.asked).toEqual([]);
    expect(await world.entries()).toMatchObject([{ kind: "http", port: 80, verdict: "denied", reason }]);
  });

  test("whatever comes to a slot without a machine, or to one without entries", async () => {
    await world.apply({ first: deny("good.example"), second: denyAll });
    expect(await say(get("good.example"), world.hosts[2])).toBe("");
    expect(await say(get("good.example"), world.hosts[1])).toMatch(/^HTTP\/1.1 403/);
    expect(seen).toEqual([]);
    expect(await say(last("good.example"), world.hosts[0])).toMatch(/^HTTP\/1.1 200/);
  });
});

describe("the second request of a connection", () => {
  test("is for the same host, though the policy has another one too", async () => {
    await world.apply({ first: deny("good.example", "evil.example") });
    const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
    let answer = "";
    socket.on("data", (chunk) => {
      answer += chunk;
    });
    socket.write(get("good.example", "/1"));
    await until(() => answer.endsWith("GET 0\r\n0\r\n\r\n"));
    socket.write(get("evil.example", "/2") + get("good.example", "/3"));
    await inTime(closed(socket), "the end of the connection");
    expect(answer).toMatch(/^HTTP\/1.1 200 .*HTTP\/1.1 400 .*for good.example/s);
    expect(answer.match(/HTTP\/1.1 /g)).toHaveLength(2);
    expect(seen.map(({ url }) => url)).toEqual(["/1"]);
    expect(evil.connections).toBe(0);
    const length = get("good.example", "/1").length;
    const [gone, refused, ...others] = await world.entries(2);
    expect(others).toEqual([]);
    expect(gone).toMatchObject({ host: "good.example", verdict: "allowed", reason: "name_allowed" });
    expect(gone?.bytes_out).toBeGreaterThanOrEqual(length);
    expect(refused).toMatchObject({ verdict: "denied", reason: "host_mismatch", bytes_out: 0, bytes_in: 0 });
  });

  test("is not hidden in the first one's body", async () => {
    const hidden = get("evil.example", "/smuggled");
    const post = `POST /1 HTTP/1.1\r\nHost: good.example\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`;
    expect((await say(post + last("good.example", "/2"))).match(/HTTP\/1.1 200/g)).toHaveLength(2);
    expect(seen.map(({ url }) => url)).toEqual(["/1", "/2"]);
  });
});

test("a body that two servers could end at two places is ended where the gateway ended it", async () => {
  const chunked = "POST /1 HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n";
  expect(
    await say(`${chunked}5;ext=1\r\nhello\r\n0\r\nTrailer: x\r\n\r\n${last("good.example", "/2")}`),
  ).toMatch(/200.*200/s);
  expect(seen.map(({ url, body }) => [url, body])).toEqual([
    ["/1", "hello"],
    ["/2", ""],
  ]);
  expect(await say(`${chunked}5 \r\nhello\r\n0\r\n\r\n`)).not.toMatch(/HTTP\/1.1 200/);
  expect(await say(`${chunked}-1\r\nhello`)).not.toMatch(/HTTP\/1.1 200/);
});

test("a request whose name leads to a forbidden address, to none, or to a closed port gets an error that says so", async () => {
  await world.apply({ first: deny("private.example", "none.example", "closed.example") });
  world.names.script = (name) => {
    if (name === "none.example") return 3;
    return [a(name, name === "private.example" ? world.privateAddress : `${PREFIX}.99`)];
  };
  expect(await say(get("private.example"))).toMatch(/^HTTP\/1.1 403 /);
  expect(await say(get("none.example"))).toMatch(/^HTTP\/1.1 502 /);
  expect(await say(get("closed.example"))).toMatch(/^HTTP\/1.1 502 /);
  const reasons = (await world.entries(3)).map(({ reason }) => reason);
  expect(reasons).toEqual(["never_address", "not_resolved", "not_reachable"]);
});

test("a change of tables ends an idle connection and one that is being answered", async () => {
  await world.apply({ first: deny("good.example", "kept.example") });
  world.names.script = (name) => [a(name, `${PREFIX}.80`)];
  const [idle, answered, kept] = await Promise.all([
    open(get("good.example", "/1")),
    open(get("good.example", "/endless")),
    open(get("kept.example", "/endless")),
  ]);
  await world.apply({ first: deny("kept.example") });
  await until(() => idle.closed && answered.closed);
  expect(kept.closed).toBe(false);
  kept.destroy();
  expect(await say(get("good.example"))).toMatch(/^HTTP\/1.1 403/);
});

/** Resolves with the first bytes of the answer. */
async function open(bytes: string): Promise<Socket> {
  const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
  socket.on("error", () => {});
  socket.write(bytes);
  await once(socket, "data");
  return socket;
}
