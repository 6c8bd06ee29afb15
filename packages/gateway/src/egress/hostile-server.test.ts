/** Servers whose answer is not HTTP: the guest gets an error, and the gateway keeps serving. */
import { connect, type Socket } from "node:net";
import { type EgressEntry, GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inTime, until } from "../../test-support/in-time.ts";
import { a, deny, startWorld, TestServer, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.11";
const UPGRADE = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
const GOOD = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BROKEN = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz";
const LONG = `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(150)}`;
let answer = GOOD;
/** Without the end it would look like an answer that breaks off. */
let isEnding = true;
const outside = new TestServer((asked, socket) => {
  const bytes = Buffer.from(asked.includes("GET /broken ") ? BROKEN : answer, "latin1");
  if (answer === LONG && bytes.length > 100) void dribble(bytes, socket);
  else if (isEnding) socket.end(bytes);
  else socket.write(bytes);
});
let world: World;

/** Byte by byte. */
async function dribble(bytes: Buffer, socket: Socket): Promise<void> {
  for (const byte of bytes) {
    socket.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
  socket.end();
}

beforeAll(async () => {
  const port = await outside.start(`${PREFIX}.80`);
  world = await startWorld(PREFIX, { http: port, tls: 1 });
  world.names.script = (name) => [a(name, `${PREFIX}.80`)];
  await world.apply({ first: deny("good.example"), second: deny("good.example") });
});

afterAll(async () => {
  outside.server.close();
  await world.close();
});

/** The bytes that the guest received by the end of its connection. */
async function ask(bytes: string, more = "Connection: close\r\n", host = world.hosts[0]): Promise<string> {
  answer = bytes;
  const socket = connect({ host, port: GATEWAY_PORTS.http });
  const heard: Buffer[] = [];
  socket.on("data", (chunk) => heard.push(chunk)).on("error", () => {});
  socket.write(Buffer.from(`GET / HTTP/1.1\r\nHost: good.example\r\n${more}\r\n`, "latin1"));
  await inTime(new Promise((resolve) => socket.once("close", resolve)), "the end of a connection");
  return Buffer.concat(heard).toString("latin1");
}

const WEB_SOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
const NONE: [string, string][] = [
  ["a version that is not ours", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
  ["a consent to another protocol", UPGRADE.replace("websocket", "other")],
];

describe.each([
  ["a request", "Connection: close\r\n"],
  ["a WebSocket", WEB_SOCKET],
])("to %s", (_, more) => {
  describe.each([
    ["and ends", true],
    ["and waits", false],
  ])("%s", (_how, ends) => {
    test.each(NONE)(
      "%s is an error for the guest, and the next request is answered",
      async (_what, bytes) => {
        isEnding = ends;
        expect(await ask(bytes, more)).toMatch(
          /^HTTP\/1.1 502 [\s\S]*Refused by the sandbox's gateway: [^\n]*\n$/,
        );
        isEnding = true;
        expect(await ask(GOOD)).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*ok$/);
      },
    );
  });

  test.each(["\u0001"])(
    "an answer whose status is called what nobody may send (%j) is passed on with the status's own name",
    async (byte) => {
      const named = `HTTP/1.1 404 a${byte}b\r\nContent-Length: 2\r\n\r\nno`;
      expect(await ask(named, more)).toMatch(/^HTTP\/1.1 404 Not Found\r\n[\s\S]*\r\n\r\nno$/);
      // It breaks off: what goes wrong later must not stumble over what came first.
      expect(await ask(named.replace("2", "20"), more)).toMatch(/^HTTP\/1.1 404 Not Found\r\n/);
    },
  );
});

test.each([
  ["a request", "Connection: close\r\n"],
  ["a WebSocket", WEB_SOCKET],
])("what was sent to an allowed host with %s is logged as sent, whatever is answered", async (_, more) => {
  const bytes = "HTTP/1.1 000 No\r\n\r\n";
  expect(await ask(bytes, more, world.hosts[1])).toMatch(/^HTTP\/1.1 502 /);
  const logged: EgressEntry[] = [];
  await until(() => {
    const { entries = [] } = world.egressLog.take() ?? {};
    logged.push(...entries.filter(({ machine_id }) => machine_id === "mch_2"));
    return logged.length > 0;
  });
  expect(logged).toMatchObject([{ host: "good.example", verdict: "allowed", reason: "name_allowed" }]);
  expect(logged[0]?.bytes_out).toBeGreaterThan("GET / HTTP/1.1\r\nHost: good.example\r\n".length);
});

test("an answer that is not HTTP is an error for the guest also on a connection that was kept", async () => {
  answer = GOOD;
  isEnding = false;
  const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
  let heard = "";
  socket.on("data", (chunk) => {
    heard += chunk;
  });
  const { connections } = outside;
  socket.write("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n");
  await until(() => heard.endsWith("ok"));
  answer = "HTTP/2.0 no\r\n\r\n";
  socket.write("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n");
  await new Promise((resolve) => socket.on("error", () => {}).once("close", resolve));
  isEnding = true;
  expect(outside.connections).toBe(connections + 1);
  expect(heard).toMatch(/ok\r?\n?.*HTTP\/1.1 502 [\s\S]*Refused by the sandbox's gateway: [^\n]*\n$/s);
});

test("an upgrade that nobody asked for is refused", async () => {
  isEnding = false;
  expect(await ask(`${UPGRADE}bytes`)).toMatch(/^HTTP\/1.1 502 [\s\S]*not an HTTP answer.\n$/);
  isEnding = true;
});

test("a status of which only its server knows the meaning is passed on", async () => {
  expect(await ask(GOOD.replace("200", "999"))).toMatch(/^HTTP\/1.1 999 unknown\r\n[\s\S]*ok$/);
});

test.each(["Connection: close\r\n", "Connection: close\r\nExpect: 100-continue\r\n", WEB_SOCKET])(
  "bytes of headers are the same bytes on either side (%j)",
  async (more) => {
    const bytes = "caf\u00e9 \u00c3\u00a9 \u00e6\u0097\u00a5";
    const named = `X-Name: ${bytes}\r\nContent-Disposition: attachment; filename="${bytes}"\r\n`;
    outside.received = Buffer.alloc(0);
    const heard = await ask(GOOD.replace("\r\n\r\n", `\r\n${named}\r\n`), `X-Asked: ${bytes}\r\n${more}`);
    expect(heard).toContain(`\r\n${named}`);
    expect(outside.received.toString("latin1")).toContain(`\r\nX-Asked: ${bytes}\r\n`);
  },
);

test("what breaks off behind an answer that is still on its way ends the connection in its turn", async () => {
  const behind = "\r\nGET /broken HTTP/1.1\r\nHost: good.example\r\n";
  for (let round = 0; round < 20; round++) {
    const heard = await ask(LONG, behind);
    expect(heard).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*x\r\n0\r\n\r\n/);
  }
});

test("a request for a WebSocket behind one that is not answered ends its connection and no other", async () => {
  isEnding = false;
  const both = `Connection: keep-alive\r\n\r\nGET /ws HTTP/1.1\r\nHost: good.example\r\n${WEB_SOCKET}`;
  expect(await ask("", both)).toBe("");
  isEnding = true;
  expect(await ask(GOOD)).toMatch(/^HTTP\/1.1 200 OK/);
});
