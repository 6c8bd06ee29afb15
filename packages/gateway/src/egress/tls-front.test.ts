import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { buildHello, captureHello, extension, serverNames, toRecords } from "../../test-support/hello.ts";
import { inTime, until } from "../../test-support/in-time.ts";
import { a, allowAll, deny, denyAll, startWorld, TestServer, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.1";
const HELLO_MS = 5_000;
const outside = new TestServer((bytes, socket) => socket.write(bytes));
const hidden = new TestServer();
const key = Buffer.from("00112233445566778899aabbccddeeff", "hex");
const secure = createTlsServer(
  { ciphers: "PSK", maxVersion: "TLSv1.2", pskCallback: () => key },
  (socket) => void socket.pipe(socket),
);
const opened: Socket[] = [];
let world: World;
let hello: Buffer;

beforeAll(async () => {
  const tls = await outside.start(`${PREFIX}.80`);
  await hidden.start(`${PREFIX}.201`, tls);
  secure.listen(tls, `${PREFIX}.81`);
  await once(secure, "listening");
  world = await startWorld(PREFIX, { http: 1, tls }, undefined, { helloMs: HELLO_MS });
  hello = await captureHello({ servername: "good.example" });
});

beforeEach(async () => {
  for (const socket of opened.splice(0)) socket.destroy();
  // Open connections end with their machine, so that their log lines are not part of the next test.
  await world.apply({ withoutFirst: true });
  await new Promise((resolve) => setTimeout(resolve, 20));
  await world.entries(0);
  await world.apply({ first: deny("good.example"), second: denyAll });
  outside.received = Buffer.alloc(0);
  outside.connections = 0;
  world.names.asked.length = 0;
  world.names.script = (name) => {
    if (name === "secure.example") return [a(name, `${PREFIX}.81`)];
    return [a(name, name.startsWith("private") ? world.privateAddress : world.publicAddress)];
  };
});

afterAll(async () => {
  for (const socket of opened) socket.destroy();
  secure.close();
  outside.server.close();
  hidden.server.close();
  await world.close();
});

async function dialGateway(host = world.hosts[0]): Promise<Socket> {
  const socket = connect({ host, port: GATEWAY_PORTS.tls, allowHalfOpen: true });
  opened.push(socket);
  socket.on("error", () => {});
  await Promise.race([new Promise((resolve) => socket.once("connect", resolve)), ended(socket)]);
  return socket;
}

/** Its end, whichever way it comes. */
function closed(socket: Socket): Promise<void> {
  return inTime(ended(socket), "the end of a connection");
}

function ended(socket: Socket): Promise<void> {
  return socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once("close", () => resolve()));
}

/** Sends these bytes; what came back by the time the connection was closed. */
async function sendAndClose(bytes: Buffer, host?: string): Promise<Buffer> {
  const socket = await dialGateway(host);
  let answer = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    answer = Buffer.concat([answer, chunk]);
  });
  socket.write(bytes);
  await closed(socket);
  return answer;
}

/** Sends these bytes; resolves once they came back from the outside. */
async function sendAndHear(bytes: Buffer, host?: string): Promise<Socket> {
  const socket = await dialGateway(host);
  let heard = 0;
  socket.on("data", (chunk) => {
    heard += chunk.length;
  });
  socket.write(bytes);
  await until(() => heard === bytes.length);
  return socket;
}

describe("a server name that the policy has", () => {
  test("is dialled where our own resolution says, and every byte passes both ways as it is", async () => {
    const socket = await sendAndHear(hello);
    expect(outside.received).toEqual(hello);
    socket.end();
    await closed(socket);
    expect(await world.entries()).toMatchObject([
      {
        ...{
          machine_id: "mch_1",
          kind: "tls",
          host: "good.example",
          address: world.publicAddress,
          port: 443,
        },
        ...{ bytes_out: hello.length, bytes_in: hello.length, verdict: "allowed", reason: "name_allowed" },
      },
    ]);
  });

  test("is spoken to in real TLS, a megabyte each way with ends passed on", async () => {
    await world.apply({ first: deny("secure.example") });
    const socket = connectTls({
      ...{ host: world.hosts[0], port: GATEWAY_PORTS.tls, servername: "secure.example" },
      ...{ ciphers: "PSK", maxVersion: "TLSv1.2", checkServerIdentity: () => undefined },
      pskCallback: () => ({ psk: key, identity: "guest" }),
    });
    opened.push(socket);
    await once(socket, "secureConnect");
    let heard = 0;
    socket.on("data", (chunk) => {
      heard += chunk.length;
    });
    socket.end(Buffer.alloc(1024 * 1024, "x"));
    await once(socket, "end");
    expect(heard).toBe(1024 * 1024);
  });

  test("is understood from twelve segments and three records, with GREASE and an encrypted inner hello", async () => {
    await world.apply({ first: deny("outer.example") });
    const encrypted = extension(0xfe0d, Buffer.from("inner.evil.tld"));
    const bytes = toRecords(
      buildHello([extension(0x0a0a, Buffer.alloc(0)), serverNames(["outer.example"]), encrypted]),
      40,
    );
    const socket = await dialGateway();
    socket.setNoDelay(true);
    let heard = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      heard = Buffer.concat([heard, chunk]);
    });
    const size = Math.ceil(bytes.length / 12);
    for (let at = 0; at < bytes.length; at += size) {
      socket.write(bytes.subarray(at, at + size));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await until(() => heard.length === bytes.length);
    expect(outside.received).toEqual(bytes);
    expect(world.names.namesAsked()).toEqual(["outer.example"]);
  });
});

describe("nothing reaches anybody, and no name server is asked,", () => {
  const random = Buffer.from(Array.from({ length: 400 }, (_, at) => (at * 89 + 3) % 251));
  test.each<[string, () => Buffer | Promise<Buffer>, string]>([
    ["for a name outside the policy", () => captureHello({ servername: "evil.example" }), "name_not_allowed"],
    ["for a name below it", () => captureHello({ servername: "a.good.example" }), "name_not_allowed"],
    ["without a name", () => captureHello({ servername: "" }), "no_name"],
    ["for an address as a name", () => toRecords(buildHello([serverNames(["127.31.1.80"])])), "no_name"],
    [
      "for a hello of 40 KiB",
      () => toRecords(buildHello([serverNames(["good.example"]), extension(21, Buffer.alloc(40_000))])),
      "malformed",
    ],
    [
      "for an outer name outside the policy",
      () =>
        toRecords(
          buildHello([serverNames(["cover.example"]), extension(0xfe0d, Buffer.from("good.example"))]),
        ),
      "name_not_allowed",
    ],
    ["for random bytes", () => random, "malformed"],
    [
      "for two names",
      () => toRecords(buildHello([serverNames(["good.example", "evil.example"])])),
      "malformed",
    ],
  ])("%s", async (_, bytes, reason) => {
    expect(await sendAndClose(await bytes())).toHaveLength(0);
    expect(outside.connections).toBe(0);
    expect(world.names.asked).toEqual([]);
    expect(await world.entries()).toMatchObject([{ kind: "tls", port: 443, verdict: "denied", reason }]);
  });

  test("when the hello does not come whole within its time", async () => {
    const started = performance.now();
    expect(await sendAndClose(hello.subarray(0, 50))).toHaveLength(0);
    expect(performance.now() - started).toBeGreaterThan(HELLO_MS - 500);
    expect(outside.connections).toBe(0);
    expect(await world.entries()).toMatchObject([{ verdict: "denied", reason: "malformed" }]);
  });

  test("in a slot of another machine, a slot without a machine, and without entries", async () => {
    for (const host of [world.hosts[1], world.hosts[2]])
      expect(await sendAndClose(hello, host)).toHaveLength(0);
    expect(outside.connections).toBe(0);
    expect(await world.entries()).toMatchObject([{ machine_id: "mch_2", reason: "name_not_allowed" }]);
    await sendAndHear(hello, world.hosts[0]);
    expect(outside.connections).toBe(1);
  });
});

describe("an address that nothing dials", () => {
  test("is not dialled for an allowed name either, alone or beside public ones, also not in mode allow", async () => {
    await world.apply({ first: deny("private.example", "mixed.example"), second: allowAll });
    world.names.script = (name) => [
      ...(name === "mixed.example" ? [a(name, world.publicAddress)] : []),
      a(name, world.privateAddress),
    ];
    for (const servername of ["private.example", "mixed.example"]) {
      const bytes = await captureHello({ servername });
      expect(await sendAndClose(bytes)).toHaveLength(0);
      expect(await sendAndClose(bytes, world.hosts[1])).toHaveLength(0);
    }
    expect(hidden.connections + outside.connections).toBe(0);
    const entries = await world.entries(4);
    expect(entries.map(({ reason }) => reason)).toEqual(Array(4).fill("never_address"));
    await world.apply({ first: deny("private.example"), never: [] });
    const socket = await dialGateway();
    socket.write(await captureHello({ servername: "private.example" }));
    await until(() => hidden.connections === 1);
  });

  test("is not dialled when a name moves there after it was found good, a thousand times", async () => {
    await world.apply({ first: deny("*.rebind.example") });
    hidden.connections = 0;
    let questions = 0;
    world.names.script = (name) => {
      questions += 1;
      return [a(name, questions % 2 === 1 ? world.publicAddress : world.privateAddress, 0)];
    };
    for (let flip = 0; flip < 1000; flip += 50) {
      const turns = Array.from({ length: 50 }, (_, at) => `n${(flip + at) >> 1}.rebind.example`);
      await Promise.all(
        turns.map(async (name) => {
          const socket = await dialGateway();
          socket.write(toRecords(buildHello([serverNames([name])])));
          const heard = new Promise((resolve) => socket.once("data", resolve));
          await inTime(Promise.race([heard, ended(socket)]), "an answer, or the end of a connection");
          socket.destroy();
        }),
      );
    }
    expect(hidden.connections).toBe(0);
    expect(outside.connections).toBeGreaterThan(0);
    expect(questions).toBeGreaterThanOrEqual(500);
  });
});

describe("a private address of which the operator opened a port", () => {
  const openPort = (port: number) => [{ range: `${PREFIX}.201/32`, port }];

  test("is dialled for an allowed name, on that port, and the policy still decides", async () => {
    hidden.connections = 0;
    const bytes = await captureHello({ servername: "private.example" });
    await world.apply({ first: deny("private.example"), second: denyAll, open: openPort(443) });
    expect(await sendAndClose(bytes, world.hosts[1])).toHaveLength(0);
    expect(hidden.connections).toBe(0);
    const socket = await dialGateway();
    socket.write(bytes);
    await until(() => hidden.connections === 1);
    socket.destroy();
    expect(await world.entries(2)).toMatchObject([
      { verdict: "denied", reason: "name_not_allowed" },
      { verdict: "allowed", reason: "name_allowed", address: world.privateAddress, port: 443 },
    ]);
  });

  test("is not dialled on another port, nor is one beside it", async () => {
    hidden.connections = 0;
    const bytes = await captureHello({ servername: "private.example" });
    for (const open of [openPort(8443), [{ range: `${PREFIX}.202/32`, port: 443 }]]) {
      await world.apply({ first: deny("private.example"), open });
      expect(await sendAndClose(bytes)).toHaveLength(0);
    }
    expect(hidden.connections).toBe(0);
    expect(new Set((await world.entries(2)).map(({ reason }) => reason))).toEqual(new Set(["never_address"]));
  });

  test("is left as soon as it is closed", async () => {
    hidden.connections = 0;
    await world.apply({ first: deny("private.example"), open: openPort(443) });
    const socket = await dialGateway();
    socket.write(await captureHello({ servername: "private.example" }));
    await until(() => hidden.connections === 1);
    const gone = closed(socket);
    await world.apply({ first: deny("private.example") });
    await gone;
    expect((await world.entries(2)).map(({ reason }) => reason)).toEqual(["name_allowed", "policy_changed"]);
  });
});

describe("a change of tables", () => {
  test("ends flows that are no longer allowed before it counts, and leaves the others alone", async () => {
    await world.apply({ first: deny("good.example", "other.example") });
    const other = await captureHello({ servername: "other.example" });
    const [kept, cut] = [await sendAndHear(hello), await sendAndHear(other)];
    const gone = closed(cut);
    await world.apply({ first: deny("good.example") });
    await gone;
    const before = outside.received.length;
    kept.write("still here");
    await until(() => outside.received.length === before + 10);
    expect(await world.entries(2)).toMatchObject([
      { host: "other.example", verdict: "allowed", reason: "name_allowed", bytes_out: other.length },
      { host: "other.example", verdict: "denied", reason: "policy_changed", bytes_out: 0 },
    ]);
  });

  test("ends flows whose machine is gone or whose address is no machine's any more", async () => {
    const first = await sendAndHear(hello);
    const gone = closed(first);
    await world.apply({ withoutFirst: true });
    await gone;
    await world.apply({ first: deny("good.example") });
    const second = await sendAndHear(hello);
    const cut = closed(second);
    await world.apply({ first: deny("good.example"), never: [`${world.publicAddress}/32`] });
    await cut;
    const denied = (await world.entries(3)).filter(({ verdict }) => verdict === "denied");
    expect(new Set(denied.map(({ reason }) => reason))).toEqual(new Set(["policy_changed"]));
  });

  test("counts also for a flow whose name is still being resolved", async () => {
    const bytes = toRecords(buildHello([serverNames(["slow.example"])]));
    await world.apply({ first: deny("slow.example") });
    world.names.script = () => "silent";
    const socket = await dialGateway();
    const gone = closed(socket);
    socket.write(bytes);
    await until(() => world.names.asked.length > 0);
    world.names.script = (name) => [a(name, world.publicAddress)];
    await world.apply({ first: denyAll });
    await gone;
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect(outside.connections).toBe(0);
  });

  test("opens what was closed at once", async () => {
    const bytes = await captureHello({ servername: "new.example" });
    expect(await sendAndClose(bytes)).toHaveLength(0);
    await world.apply({ first: deny("new.example") });
    await sendAndHear(bytes);
    expect(outside.received).toEqual(bytes);
  });
});

test("a machine has at most 512 flows, and another one's are not counted with them", async () => {
  await world.apply({ first: deny("good.example"), second: deny("good.example") });
  const sockets = await Promise.all(Array.from({ length: 512 }, () => dialGateway()));
  expect(await sendAndClose(hello)).toHaveLength(0);
  expect(await world.entries()).toMatchObject([
    { machine_id: "mch_1", verdict: "denied", reason: "too_many" },
  ]);
  await sendAndHear(hello, world.hosts[1]);
  for (const socket of sockets) socket.destroy();
});

test("a guest that does not read does not make the gateway hold what a server sends", async () => {
  let sent = 0;
  const flood = new TestServer((_, socket) => {
    const more = () => {
      do sent += 65_536;
      while (socket.write(Buffer.alloc(65_536)) && sent < 256 * 1024 * 1024);
    };
    socket.on("drain", more);
    more();
  });
  await flood.start(`${PREFIX}.82`, world.outside.tls);
  world.names.script = (name) => [a(name, `${PREFIX}.82`)];
  await world.apply({ first: deny("flood.example") });
  const socket = await dialGateway();
  socket.pause();
  socket.write(toRecords(buildHello([serverNames(["flood.example"])])));
  await until(() => sent > 0);
  let before = -1;
  while (before !== sent) {
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  expect(sent).toBeLessThan(64 * 1024 * 1024);
  socket.destroy();
  flood.server.close();
});
