/** Servers that answer what is no answer: the client gets a 502, and the door serves on. */
import { type AddressInfo, createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exchange, type StrictProxy, startProxy } from "../test-support/proxy.ts";

const UPGRADE = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
/** One more than are listened to. */
const HINTS = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);
const GOOD = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
let answer = GOOD;
let isEnding = true;
let server: Server;
let proxy: StrictProxy;

beforeAll(async () => {
  server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      if (isEnding) socket.end(Buffer.from(answer, "latin1"));
      else socket.write(Buffer.from(answer, "latin1"));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy = await startProxy((server.address() as AddressInfo).port);
});

afterAll(async () => {
  await proxy.close();
  server.close();
});

/** The bytes that the client received by the end of its connection. */
async function ask(bytes: string, more = "Connection: close\r\n"): Promise<string> {
  answer = bytes;
  return await exchange(proxy.port, `GET / HTTP/1.1\r\nHost: good.example\r\n${more}\r\n`);
}

const WEB_SOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
const NONE: [string, string][] = [
  ["a status that is none", "HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"],
  ["a status of nothing", "HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n"],
  ["a status of four digits", "HTTP/1.1 1000 No\r\nContent-Length: 0\r\n\r\n"],
  ["a version that is not ours", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
  ["a 101 that consents to nothing", "HTTP/1.1 101 \r\n\r\nbytes"],
  ["a consent to another protocol", UPGRADE.replace("websocket", "other")],
  ["a coding that is not taken off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
  ["more interim answers than are listened to, and then one", HINTS + GOOD],
  ["more interim answers than are listened to, and then a consent", HINTS + UPGRADE],
  ["interim answers and nothing else", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\n\r\n"],
  ["a phrase that nobody may send, and no status", "HTTP/1.1 000 \u0001\r\n\r\n"],
  ["nothing", ""],
  ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
  [
    "a length and chunks",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ],
  [
    "more interim answers than are listened to, and then a status that is none",
    `${HINTS}HTTP/1.1 101 \r\n\r\n`,
  ],
];

describe.each([
  ["a request", "Connection: close\r\n"],
  ["a WebSocket", WEB_SOCKET],
])("to %s", (_, more) => {
  describe.each([
    ["and ends", true],
    ["and waits", false],
  ])("%s", (_how, ends) => {
    test.each(NONE.filter(([name]) => ends || !/nothing$|nothing else$/.test(name)))(
      "%s is a 502 for the client, and the next request is answered",
      async (_what, bytes) => {
        isEnding = ends;
        expect(await ask(bytes, more)).toMatch(/^HTTP\/1.1 502 /);
        isEnding = true;
        expect(await ask(GOOD)).toMatch(/^HTTP\/1.1 200 OK\r\n[\s\S]*ok$/);
      },
    );
  });

  test.each(["\u0001", "\u007f", "\u00ff", "\u0000"])(
    "an answer whose status is called what nobody may send (%j) is passed on with the status's own name",
    async (byte) => {
      const named = `HTTP/1.1 404 a${byte}b\r\nContent-Length: 2\r\n\r\nno`;
      expect(await ask(named, more)).toMatch(/^HTTP\/1.1 404 Not Found\r\n[\s\S]*\r\n\r\nno$/);
      // It breaks off: what goes wrong later must not stumble over what came first.
      expect(await ask(named.replace("2", "20"), more)).toMatch(/^HTTP\/1.1 404 Not Found\r\n/);
    },
  );
});

test("an upgrade that nobody asked for is refused", async () => {
  expect(await ask(`${UPGRADE}bytes`)).toMatch(/^HTTP\/1.1 502 /);
});

test("a consent is passed on with its headers, and what follows it", async () => {
  const heard = await ask(`${UPGRADE.replace("Conn", "X-Own: caf\u00e9\r\nConn")}bytes`, WEB_SOCKET);
  expect(heard).toMatch(
    /^HTTP\/1.1 101 Switching Protocols\r\n[\s\S]*X-Own: caf\u00e9\r\n[\s\S]*\r\n\r\nbytes$/,
  );
});
