import { once } from "node:events";
import { Agent, request } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { inTime } from "../../test-support/in-time.ts";
import {
  expose,
  type Gateway,
  get,
  openUpgrade,
  sendRaw,
  startGateway,
} from "../../test-support/previews.ts";

const MIB = 1 << 20;

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

/** The bytes still in use, without those that the collector would free. */
function heldBytes(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const UPGRADE = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
/** One more than are listened to. */
const HINTS = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17);

let gateway: Gateway;
let server: Server;
let sockets: Set<Socket>;
/** Bytes that the guest got rid of. */
let sent = 0;
/** More than any guest may get rid of before it has answered. */
const TOO_MUCH = 16 * MIB;
let tooMuch: PromiseWithResolvers<string>;

beforeEach(async () => {
  gateway = await startGateway();
  sockets = new Set();
  sent = 0;
  tooMuch = Promise.withResolvers();
});

afterEach(async () => {
  await gateway.previews.close();
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

/** A guest that does with each connection as it likes once a request is there. */
async function guestDoing(act: (socket: Socket) => void) {
  server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.once("data", () => {
      socket.resume();
      act(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.79.0.1", resolve));
  const { address, port } = server.address() as AddressInfo;
  return expose(gateway, { address, port }, { visibility: "public" });
}

/** Writes the same bytes until the other side goes or `total` was sent, as fast as they are taken. */
function writeRepeatedly(socket: Socket, bytes: string | Buffer, total = Number.POSITIVE_INFINITY): void {
  const more = () => {
    if (socket.destroyed || sent >= total) return;
    sent += bytes.length;
    if (sent >= TOO_MUCH) tooMuch.resolve("too much was taken");
    socket.write(bytes, () => more());
  };
  more();
}

const outcome = async (host: string) =>
  inTime(
    get(gateway, host).then(
      ({ status }) => status,
      () => "cut",
    ),
    "an answer",
  );

describe("a guest that answers what is no answer (P-09)", () => {
  test.each([
    [
      "a header of a gibibyte",
      (socket: Socket) => {
        socket.write("HTTP/1.1 200 OK\r\nX-A: ");
        writeRepeatedly(socket, "a".repeat(64 << 10), 1 << 30);
      },
    ],
    [
      "headers without an end",
      (socket: Socket) => {
        socket.write("HTTP/1.1 200 OK\r\n");
        writeRepeatedly(socket, "X-A: b\r\n".repeat(1000));
      },
    ],
    [
      "interim answers without an end",
      (socket: Socket) => {
        writeRepeatedly(socket, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100));
      },
    ],
    ["noise", (socket: Socket) => writeRepeatedly(socket, "\u0001\u0002\u0003".repeat(1000))],
  ])("%s is 502, and little of it was taken", async (_, act) => {
    const { host } = await guestDoing(act);
    expect(await Promise.race([outcome(host), tooMuch.promise])).toBe(502);
    expect(sent).toBeLessThan(TOO_MUCH);
  });

  test.each([
    ["an upgrade that nobody asked for", `${UPGRADE}bytes`],
    [
      "a coding that is not taken off",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ],
  ])("%s is 502", async (_, bytes) => {
    const { host } = await guestDoing((socket) => socket.end(bytes));
    expect(await outcome(host)).toBe(502);
  });

  test.each([
    ["less than the length it promised", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"],
    ["a chunk that breaks off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"],
    ["a chunk that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab"],
  ])("%s ends the visitor's connection, so that it is not taken for whole", async (_, bytes) => {
    const { host } = await guestDoing((socket) => socket.end(bytes));
    expect(await outcome(host)).toBe("cut");
  });

  test("to an upgrade, with another protocol, is 502", async () => {
    const { host } = await guestDoing((socket) =>
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n"),
    );
    const { head, socket } = await openUpgrade(gateway, host, "/");
    socket.destroy();
    expect(head).toMatch(/^HTTP\/1\.1 502 /);
  });

  test.each([["more interim answers than are listened to, and then its consent", HINTS + UPGRADE]])(
    "to an upgrade, with %s, is 502, and the next visitor is answered",
    async (_, bytes) => {
      const { host } = await guestDoing((socket) => socket.end(bytes));
      const { head, socket } = await openUpgrade(gateway, host, "/");
      socket.destroy();
      expect(head).toMatch(/^HTTP\/1\.1 502 /);
      expect(await outcome(host)).toBe(502);
    },
  );

  test.each(["\u0001"])(
    "and calls its status what nobody may send (%j) is passed on with the status's own name",
    async (byte) => {
      const { host } = await guestDoing((socket) =>
        socket.end(Buffer.from(`HTTP/1.1 404 a${byte}b\r\nContent-Length: 2\r\n\r\nno`, "latin1")),
      );
      const raw = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
      expect(await sendRaw(gateway.port, raw)).toMatch(/^HTTP\/1\.1 404 Not Found\r\n[\s\S]*\r\n\r\nno$/);
    },
  );

  test("but what is large and proper is passed on", async () => {
    const { host } = await guestDoing((socket) => {
      const headers = Array.from({ length: 150 }, (_, i) => `X-${i}: ${"a".repeat(300)}\r\n`).join("");
      socket.end(`HTTP/1.1 200 OK\r\n${headers}Content-Length: 2\r\n\r\nok and more than it promised`);
    });
    const reply = await get(gateway, host);
    expect([reply.status, reply.headers["x-149"], reply.body]).toEqual([200, "a".repeat(300), "ok"]);
  });
});

describe("a guest that answers without an end", () => {
  const chunks = "1\r\na\r\n".repeat(1000);

  test("in a million tiny chunks costs the gateway no memory to speak of", async () => {
    const { host } = await guestDoing((socket) => {
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      writeRepeatedly(socket, chunks);
    });
    const outgoing = request({ port: gateway.port, headers: { host }, agent: false }).end();
    outgoing.on("error", () => undefined);
    const [answer] = await once(outgoing, "response");
    let bytes = 0;
    let before = 0;
    for await (const chunk of answer) {
      bytes += chunk.length;
      if (before === 0 && bytes > 100_000) before = heldBytes();
      if (bytes > 1_000_000) {
        expect(heldBytes() - before).toBeLessThan(16 * MIB);
        break;
      }
    }
    expect(bytes).toBeGreaterThan(1_000_000);
    outgoing.destroy();
  });

  test("in tiny chunks that nobody reads is held up, with little kept of them", async () => {
    const { host } = await guestDoing((socket) => {
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      writeRepeatedly(socket, chunks);
    });
    const before = heldBytes();
    const readers = await Promise.all(
      Array.from({ length: 2 }, async () => {
        const outgoing = request({ port: gateway.port, headers: { host }, agent: false }).end();
        const [answer] = await once(
          outgoing.on("error", () => undefined),
          "response",
        );
        answer.on("error", () => undefined).pause();
        return outgoing;
      }),
    );
    let last = -1;
    while (last !== sent) {
      last = sent;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    expect(heldBytes() - before).toBeLessThan(16 * MIB);
    for (const outgoing of readers) outgoing.destroy();
  });

  test("is stopped when its visitor leaves", async () => {
    const { host } = await guestDoing((socket) => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      writeRepeatedly(socket, Buffer.alloc(16 << 10));
    });
    const outgoing = request({ port: gateway.port, headers: { host }, agent: false }).end();
    outgoing.on("error", () => undefined);
    const [answer] = await once(outgoing, "response");
    answer.on("error", () => undefined);
    const [socket] = sockets;
    const closed = new Promise((resolve) => socket?.once("close", resolve));
    outgoing.destroy();
    await closed;
    expect(socket?.destroyed).toBe(true);
  });
});

test("a guest that refuses an upgrade at length is heard to the end", async () => {
  const { host } = await guestDoing((socket) => {
    socket.write(`HTTP/1.1 403 Forbidden\r\nContent-Length: ${4 * MIB}\r\n\r\n`);
    writeRepeatedly(socket, Buffer.alloc(64 << 10, "x"), 4 * MIB);
  });
  const asked = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
  const answer = await sendRaw(gateway.port, asked);
  expect(answer).toMatch(/^HTTP\/1\.1 403 /);
  expect(answer.length - answer.indexOf("\r\n\r\n") - 4).toBe(4 * MIB);
});

test("a guest that refuses an upgrade without an end is left once its visitor leaves", async () => {
  const left = Promise.withResolvers<void>();
  const { host } = await guestDoing((socket) => {
    socket.once("close", left.resolve);
    socket.write("HTTP/1.1 403 Forbidden\r\n\r\nno");
  });
  const { socket } = await openUpgrade(gateway, host, "/");
  socket.resume().end();
  await left.promise;
  expect([...sockets].every(({ destroyed }) => destroyed)).toBe(true);
});

describe("a guest that takes no body", () => {
  test("but answers is heard, and the visitor's connection ends", async () => {
    const { host } = await guestDoing((socket) => {
      socket.end("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
    });
    const outgoing = request({
      port: gateway.port,
      method: "POST",
      headers: { host, "content-length": "1000000" },
      agent: false,
    });
    outgoing.on("error", () => undefined);
    outgoing.write("some");
    const [answer] = await once(outgoing, "response");
    expect(answer.statusCode).toBe(413);
    answer.resume();
    await once(outgoing, "close");
    expect(outgoing.destroyed).toBe(true);
  });
});

describe("more requests than a guest may have at once", () => {
  test("wait in line: 256 are with the guest, and the next comes when one is done", async () => {
    const { host } = await guestDoing(() => undefined);
    const asked = Array.from({ length: 300 }, () => {
      const outgoing = request({ port: gateway.port, headers: { host }, agent: false }).end();
      outgoing.on("error", () => undefined).on("response", (answer) => answer.resume());
      return outgoing;
    });
    while (sockets.size < 256) await new Promise((resolve) => setTimeout(resolve, 10));
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(sockets.size).toBe(256);
    const [first] = sockets;
    first?.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    while (sockets.size < 257) await new Promise((resolve) => setTimeout(resolve, 10));
    expect(sockets.size).toBe(257);
    for (const outgoing of asked) outgoing.destroy();
  });

  test("get a refusal when none is done for 10 seconds, and keep no connection", async () => {
    const { host } = await guestDoing(() => undefined);
    const asked = Array.from({ length: 256 }, () => {
      const outgoing = request({ port: gateway.port, headers: { host }, agent: false }).end();
      return outgoing.on("error", () => undefined);
    });
    while (sockets.size < 256) await new Promise((resolve) => setTimeout(resolve, 10));
    const outgoing = request({
      port: gateway.port,
      headers: { host },
      agent: new Agent({ keepAlive: true }),
    });
    const [answer] = await once(outgoing.end(), "response");
    expect([answer.statusCode, answer.headers.connection]).toEqual([503, "close"]);
    for (const each of [...asked, outgoing]) each.destroy();
  });
});
