/** Requests sent ahead of their answers, and answers that are not HTTP: how much memory a guest or a server can take in the gateway. */
import { connect, type Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../test-support/in-time.ts";
import { a, deny, startWorld, TestServer, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.9";
const MIB = 1 << 20;
let world: World;
let guests: Socket[] = [];
/** The server's behaviour by the path of a request. */
const acts: Record<string, (socket: Socket) => void> = {};
let interimBytes = 0;
let crumbs = 0;

const outside = new TestServer((received, socket) => {
  for (const [, path = ""] of received.toString().matchAll(/^[A-Z]+ (\S+) HTTP/gm)) acts[path]?.(socket);
});

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

function heldBytes(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

beforeAll(async () => {
  const port = await outside.start(`${PREFIX}.80`);
  world = await startWorld(PREFIX, { http: port, tls: port });
  world.names.script = (name) => [a(name, `${PREFIX}.80`)];
  const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  acts["/"] = (socket) => socket.write(answer);
  acts["/interim"] = (socket) => {
    if (socket.destroyed || interimBytes > 256 * MIB) return;
    const interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
    interimBytes += interim.length;
    socket.write(interim, () => acts["/interim"]?.(socket));
  };
  acts["/deaf"] = (socket) => void socket.pause();
  acts["/crumbs"] = (socket) => {
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    sendTinyChunks(socket);
  };
  acts["/twice"] = (socket) => socket.write(`${"HTTP/1.1 100 Continue\r\n\r\n".repeat(2)}${answer}`);
});

beforeEach(async () => {
  interimBytes = 0;
  crumbs = 0;
  await world.apply({ first: deny("good.example"), second: deny("good.example") });
  await world.entries(0);
});

afterEach(() => {
  for (const guest of guests) guest.destroy();
  guests = [];
});

afterAll(async () => {
  outside.server.close();
  await world.close();
});

const get = (path: string, more = "", host = "good.example") =>
  `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** Sends one-byte chunks for as long as they are taken. */
function sendTinyChunks(socket: Socket): void {
  if (socket.destroyed || crumbs > 256 * MIB) return;
  const bytes = "1\r\na\r\n".repeat(10_000);
  crumbs += bytes.length;
  socket.write(bytes, () => sendTinyChunks(socket));
}

interface Guest {
  socket: Socket;
  heard: string;
}

function say(bytes: string, host = world.hosts[0]): Guest {
  const guest = { socket: connect({ host, port: GATEWAY_PORTS.http }), heard: "" };
  guests.push(guest.socket);
  guest.socket.on("error", () => {});
  guest.socket.on("data", (chunk) => {
    guest.heard += chunk.toString("latin1");
  });
  guest.socket.write(bytes);
  return guest;
}

async function expectNeighbourServed(): Promise<void> {
  const neighbour = say(get("/"), world.hosts[1]);
  await until(() => neighbour.heard.endsWith("ok"));
}

describe("requests to a server that does not answer", () => {
  test("wait in line up to 16; with one more the connection is cut", async () => {
    const patient = say(get("/silent").repeat(16));
    const hasty = say(get("/silent").repeat(17));
    await until(() => hasty.socket.closed);
    expect(await world.entries()).toMatchObject([
      { machine_id: "mch_1", host: "good.example", verdict: "denied", reason: "too_many" },
    ]);
    expect(patient.socket.closed).toBe(false);
    await expectNeighbourServed();
  });

  test.each([
    ["as they are", get("/silent").repeat(2_000)],
    ["behind one that is refused", get("/silent") + get("/", "", "evil.example") + get("/").repeat(2_000)],
    ["with a wish that nobody knows", get("/silent") + get("/", "Expect: the-best\r\n").repeat(2_000)],
  ])("cost no memory to speak of, %s, however many are sent", async (_, bytes) => {
    await expectNeighbourServed();
    const before = heldBytes();
    const floods = Array.from({ length: 40 }, () => say(bytes));
    await until(() => floods.every(({ socket }) => socket.closed));
    expect(heldBytes() - before).toBeLessThan(32 * MIB);
    await expectNeighbourServed();
  });

  test("are at most 512 ahead of their turn for all connections of a machine", async () => {
    const many = Array.from({ length: 60 }, () => say(get("/silent").repeat(16)));
    await until(() => many.filter(({ socket }) => socket.closed).length >= 26);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(many.filter(({ socket }) => !socket.closed)).toHaveLength(34);
    const single = say(get("/"));
    await until(() => single.heard.endsWith("ok"));
    await expectNeighbourServed();
  });
});

test("a guest that waits for its answers may ask as often as it likes, 16 at a time", async () => {
  const guest = say("");
  for (let sent = 0; sent < 64; sent += 16) {
    guest.socket.write(get("/").repeat(16));
    await until(() => guest.heard.split("\r\n\r\nok").length - 1 === sent + 16);
  }
  expect(guest.socket.closed).toBe(false);
});

test("one-byte chunks that come together are forwarded together", async () => {
  outside.received = Buffer.alloc(0);
  const guest = say(get("/silent", "Transfer-Encoding: chunked\r\n"));
  guest.socket.write(`${"1\r\nx\r\n".repeat(10_000)}0\r\n\r\n`);
  await until(() => outside.received.toString().endsWith("\r\n0\r\n\r\n"));
  const [, body = ""] = /\r\n\r\n(.*)$/s.exec(outside.received.toString()) ?? [];
  expect(body.match(/x/g)).toHaveLength(10_000);
  expect(body.split("\r\n").length).toBeLessThan(100);
});

describe("a body of one-byte chunks that the other side does not read is held up, with little kept of it,", () => {
  async function expectLittleHeld(guest: Guest, before: number): Promise<void> {
    let seen = 0;
    await until(() => crumbs > MIB);
    while (seen !== crumbs) {
      seen = crumbs;
      await new Promise((resolve) => setTimeout(resolve, 2_000));
    }
    await until(() => heldBytes() - before < 4 * MIB);
    guest.socket.destroy();
    await expectNeighbourServed();
  }

  test("on its way out", { timeout: 120_000 * SLOWNESS }, async () => {
    await expectNeighbourServed();
    const before = heldBytes();
    const guest = say(get("/deaf", "Transfer-Encoding: chunked\r\n"));
    sendTinyChunks(guest.socket);
    await expectLittleHeld(guest, before);
  });

  test("on its way in", { timeout: 120_000 * SLOWNESS }, async () => {
    await expectNeighbourServed();
    const before = heldBytes();
    const guest = say(get("/crumbs"));
    guest.socket.pause();
    await expectLittleHeld(guest, before);
  });
});

describe("a server that answers 100 Continue", () => {
  test("is passed on once, and only to a guest that waits for it", async () => {
    const silent = say(get("/twice"));
    const waiting = say(get("/twice", "Expect: 100-continue\r\n"));
    await until(() => silent.heard.endsWith("ok") && waiting.heard.endsWith("ok"));
    expect(silent.heard).toMatch(/^HTTP\/1.1 200 /);
    expect(waiting.heard.match(/HTTP\/1.1 100 Continue/g)).toHaveLength(1);
  });

  test("without an end is not heard to the end: the guest gets a 502", async () => {
    const plain = say(get("/interim"));
    const waiting = say(get("/interim", "Expect: 100-continue\r\n"));
    await until(() => plain.socket.closed && waiting.socket.closed);
    expect(plain.heard).toMatch(/^HTTP\/1.1 502 /);
    expect(waiting.heard).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 502 /);
    expect(interimBytes).toBeLessThan(64 * MIB);
    await expectNeighbourServed();
  });
});
