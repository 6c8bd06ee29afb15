/** Origins that do not prove who they are, hang, break off, or send what is not HTTP: 502, and no credential for impostors. */
import { once } from "node:events";
import { connect, createServer as createTcp, type Server, type Socket } from "node:net";
import { createServer as createTls, type TLSSocket, type TlsOptions } from "node:tls";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { makeAuthority, signServer } from "@vivarium/kit/certificates";
import { createLog } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import {
  type AskOptions,
  ask2,
  askOver,
  type BoundWorld,
  connection,
  reportsOf,
  SECRET,
  startBoundWorld,
} from "../../test-support/bound-world.ts";
import { makeConstrainedAuthority } from "../../test-support/constrained-authority.ts";
import { captureHello } from "../../test-support/hello.ts";
import { inTime } from "../../test-support/in-time.ts";
import { a, deny } from "../../test-support/world.ts";
import { Credential } from "./credential.ts";

const PREFIX = "127.31.47";
const DAY_MS = 24 * 3_600_000;
/** How long an origin may take to answer. */
const ANSWER_MS = 1_500 * SLOWNESS;
/** Bytes of an answer, and of an upload, that kernels and processes may hold on their way. */
const MOST_ON_THE_WAY = 32 * 1024 * 1024;
const MOST_UPLOADED = 64 * 1024 * 1024;
/** Waits until a count has not grown for a while, or is at its maximum. */
async function settled(count: () => number, most: number): Promise<void> {
  for (let seen = -1; seen !== count() && count() < most; await pause(500 * SLOWNESS)) seen = count();
}
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const servers: Server[] = [];
const sockets = new Set<Socket>();
/** Plain text that a server received over TLS. */
let received = "";
let connections = 0;
/** Certificates of clients, empty ones for none, that a server asked for. */
const shown: object[] = [];
let world: BoundWorld;
const HOSTS = [
  "self-signed",
  "foreign",
  "expired",
  "misnamed",
  "outside",
  "permitted",
  "bare",
  "silent",
  "asking",
  "wishing",
  "closed",
  "scripted",
  "nameless",
];
const nameOf = (kind: string) => `${kind}.api.example`;
const addressOf = (kind: string) => `${PREFIX}.${90 + HOSTS.indexOf(kind)}`;
/** Serves one connection of the scripted server, from its first bytes on. */
let script: (socket: Socket) => void = () => {};

function keep(socket: Socket): void {
  connections += 1;
  sockets.add(socket);
  socket.on("error", () => {}).once("close", () => sockets.delete(socket));
}

async function listen(kind: string, server: Server): Promise<void> {
  server.on("connection", keep).on("tlsClientError", () => {});
  server.listen(world.outside.tls, addressOf(kind));
  servers.push(server);
  await once(server, "listening");
}

function tlsServer(options: TlsOptions, onData: (socket: Socket) => void = () => {}): Server {
  return createTls(options, (socket) => {
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      received += chunk.toString("latin1");
    });
    socket.once("data", () => onData(socket));
  });
}

const ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const pair = ({ certificatePem, keyPem }: { certificatePem: string; keyPem: string }) => ({
  cert: certificatePem,
  key: keyPem,
});

beforeAll(async () => {
  const constrained = makeConstrainedAuthority(nameOf("permitted"));
  world = await startBoundWorld(PREFIX, {
    limits: { handshakeMs: 1_000 * SLOWNESS, answerMs: ANSWER_MS },
    moreRoots: [constrained.certificatePem],
  });
  world.names.script = (name) =>
    name === nameOf("nameless") ? [] : [a(name, addressOf(name.split(".")[0] ?? ""))];
  await world.apply({ first: deny("*.api.example", "api.example") });
  const sign = (host: string, lifeMs = DAY_MS) => signServer(world.roots, { host, lifeMs });
  const own = await makeAuthority({ name: nameOf("self-signed"), notAfter: new Date(Date.now() + DAY_MS) });
  const answer = (socket: Socket) => void socket.write(ANSWER);
  await listen("self-signed", tlsServer(pair(own), answer));
  await listen(
    "foreign",
    tlsServer(pair(await signServer(own, { host: nameOf("foreign"), lifeMs: DAY_MS })), answer),
  );
  await listen("expired", tlsServer(pair(await sign(nameOf("expired"), 60_000)), answer));
  await listen("misnamed", tlsServer(pair(await sign("other.api.example")), answer));
  // The authority is trusted, and may not sign the name of the first one.
  const ofConstrained = (kind: string) => signServer(constrained, { host: nameOf(kind), lifeMs: DAY_MS });
  await listen("outside", tlsServer(pair(await ofConstrained("outside")), answer));
  await listen("permitted", tlsServer(pair(await ofConstrained("permitted")), answer));
  await listen(
    "bare",
    createTcp((socket) => void socket.end(ANSWER)),
  );
  await listen(
    "silent",
    createTcp(() => {}),
  );
  const asking = { requestCert: true, rejectUnauthorized: true, ...pair(await sign(nameOf("asking"))) };
  await listen("asking", tlsServer(asking, answer));
  const wishing = { requestCert: true, rejectUnauthorized: false, ...pair(await sign(nameOf("wishing"))) };
  await listen(
    "wishing",
    tlsServer(wishing, (socket) => {
      shown.push((socket as TLSSocket).getPeerCertificate());
      answer(socket);
    }),
  );
  await listen(
    "scripted",
    tlsServer(pair(await sign(nameOf("scripted"))), (socket) => script(socket)),
  );
});

beforeEach(async () => {
  await world.bind(
    {},
    {
      connections: HOSTS.map((kind, at) => connection({ name: `c${at}`, host: nameOf(kind) })),
    },
  );
  received = "";
  connections = 0;
  world.reports().length = 0;
});

afterAll(async () => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
  await world.close();
});

/** Asks over a new connection of the guest. */
async function ask(
  kind: string,
  options: Pick<AskOptions, "method" | "body" | "onBody"> & { body?: string } = {},
) {
  const socket = await world.open({ servername: nameOf(kind) });
  const headers = {
    Host: nameOf(kind),
    ...(options.body !== undefined && { "Content-Length": options.body.length }),
  };
  return await inTime(askOver(socket, "/a", { ...options, headers }), "an answer", 20_000).finally(() =>
    socket.destroy(),
  );
}

const playing = (bytes: string) => {
  script = (socket) => void socket.write(Buffer.from(bytes, "latin1"));
};

describe("an origin that does not prove to be the host gets nothing of the credential:", () => {
  test.each([...["self-signed", "foreign", "expired", "misnamed", "outside", "bare", "silent"]])(
    "%s",
    async (kind) => {
      const reply = await ask(kind);
      expect(reply.status).toBe(502);
      expect(JSON.parse(reply.body)).toMatchObject({ code: "connection_upstream" });
      expect(connections).toBe(1);
      expect(received).toBe("");
      expect(await reportsOf(world, 1)).toMatchObject([{ event: "failed", is_sent: false }]);
    },
  );

  test("whatever the environment says about verification", async () => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    try {
      expect((await ask("self-signed")).status).toBe(502);
      expect(received).toBe("");
    } finally {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    }
  });

  test("also for a guest with HTTP/2", async () => {
    for (const kind of ["expired", "outside", "misnamed"]) {
      const session = await world.session2of(nameOf(kind));
      expect((await ask2(session, { ":authority": nameOf(kind) })).status).toBe(502);
      session.destroy();
    }
    expect(connections).toBe(3);
    expect(received).toBe("");
  });

  test("and one whose authority may sign its name gets it", async () => {
    expect(await ask("permitted")).toMatchObject({ status: 200, body: "ok" });
    expect(received).toContain(`Authorization: Bearer ${SECRET}`);
  });

  test("and one that does gets it", async () => {
    playing(ANSWER);
    expect(await ask("scripted")).toMatchObject({ status: 200, body: "ok" });
    expect(received).toContain(`Authorization: Bearer ${SECRET}`);
  });
});

test("an origin that demands a client's certificate gets none, refuses, and reads no request", async () => {
  expect((await ask("asking")).status).toBe(502);
  expect(connections).toBe(1);
  expect(received).toBe("");
});

test("an origin that would like a client's certificate gets none, and the request", async () => {
  expect(await ask("wishing")).toMatchObject({ status: 200, body: "ok" });
  expect(shown).toEqual([{}]);
  expect(received).toContain(`Authorization: Bearer ${SECRET}`);
});

test("an address where nothing listens is answered with 502, and the credential counts as not sent", async () => {
  expect((await ask("closed")).status).toBe(502);
  expect(await reportsOf(world, 1)).toMatchObject([{ event: "failed", is_sent: false }]);
});

test("a name that does not resolve is answered with 502, and the credential counts as not sent", async () => {
  expect((await ask("nameless")).status).toBe(502);
  expect(await reportsOf(world, 1)).toMatchObject([{ event: "failed", is_sent: false }]);
});

test("an origin that takes the request and breaks off has been sent the credential", async () => {
  script = (socket) => void socket.destroy();
  expect((await ask("scripted")).status).toBe(502);
  expect(received).toContain(`Authorization: Bearer ${SECRET}`);
  expect(await reportsOf(world, 1)).toMatchObject([{ event: "failed", is_sent: true }]);
});

describe("502, and the next request is answered, after", () => {
  test.each<[string, string]>([
    ["bytes that are not HTTP", "SSH-2.0-OpenSSH\r\n\r\n"],
    ["another version", "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
    [
      "a switch of protocols",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    ],
    ["interim answers without end", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(5_000)],
    ["giant headers", `HTTP/1.1 200 OK\r\nX-Long: ${"x".repeat(200_000)}\r\n\r\n`],
    ["many headers", `HTTP/1.1 200 OK\r\n${"X-A: bbbbbbbbbbbbbbbbb\r\n".repeat(20_000)}\r\n`],
    [
      "a length and chunks",
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"],
    ["another transfer coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc"],
    ["an injected line in a header", "HTTP/1.1 200 OK\r\nX-A: b\rX-B: c\r\n\r\n"],
  ])("%s", async (_, bytes) => {
    playing(bytes);
    for (const body of [undefined, "body"]) {
      expect((await ask("scripted", body === undefined ? {} : { method: "POST", body })).status).toBe(502);
    }
    playing(ANSWER);
    expect(await ask("scripted")).toMatchObject({ status: 200, body: "ok" });
  });

  test("a connection that is closed before an answer", async () => {
    script = (socket) => void socket.destroy();
    expect((await ask("scripted")).status).toBe(502);
    playing(ANSWER);
    expect((await ask("scripted")).status).toBe(200);
  });

  test("headers that never end", async () => {
    script = (socket) => {
      socket.write("HTTP/1.1 200 OK\r\n");
      const timer = setInterval(() => socket.write("X-A: b\r\n"), 100);
      socket.once("close", () => clearInterval(timer));
    };
    const started = performance.now();
    expect((await ask("scripted")).status).toBe(502);
    expect(performance.now() - started).toBeGreaterThan(ANSWER_MS - 100);
  });

  test("no answer at all, over HTTP/2 as well", async () => {
    script = () => {};
    expect((await ask("scripted")).status).toBe(502);
    const session = await world.session2of(nameOf("scripted"));
    expect((await ask2(session, { ":authority": nameOf("scripted") })).status).toBe(502);
    session.destroy();
  });
});

test.each<[string, string]>([
  ["a length that is not reached", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"],
  ["chunks that do not end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"],
])("an answer that breaks off is not whole for the guest: %s", async (_, bytes) => {
  let breakOff = () => {};
  script = (socket) => {
    breakOff = () => socket.destroy();
    socket.write(bytes);
  };
  const onBody = () => breakOff();
  expect(await ask("scripted", { onBody })).toMatchObject({ status: 200, body: "part", isWhole: false });
  const session = await world.session2of(nameOf("scripted"));
  const reply = await ask2(session, { ":authority": nameOf("scripted") }, undefined, onBody);
  expect(reply).toMatchObject({ status: 200, isWhole: false });
  session.destroy();
});

test.each<[string, string]>([
  ["at the head", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: a\r\nETag: b\r\n\r\n"],
  [
    "in trailers",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nETag: a\r\nETag: b\r\n\r\n",
  ],
  [
    "of another version in trailers",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n:status: 1\r\n\r\n",
  ],
])("headers %s that HTTP/2 cannot carry end this answer alone", async (_, bytes) => {
  playing(bytes);
  const session = await world.session2of(nameOf("scripted"));
  expect((await ask2(session, { ":authority": nameOf("scripted") })).isWhole).toBeDefined();
  session.destroy();
  playing(ANSWER);
  expect(await ask("scripted")).toMatchObject({ status: 200, body: "ok" });
});

test("an answer with a broken chunk is not whole for the guest", async () => {
  let breakOff = () => {};
  script = (socket) => {
    breakOff = () => socket.write("zz\r\n");
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n");
  };
  expect(await ask("scripted", { onBody: () => breakOff() })).toMatchObject({
    status: 200,
    body: "part",
    isWhole: false,
  });
});

test("an answer without end waits for a guest that does not read, and takes bounded memory", async () => {
  let sent = 0;
  script = (socket) => {
    socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const chunk = Buffer.from(`10000\r\n${"x".repeat(65_536)}\r\n`);
    const more = () => {
      while (socket.writable) {
        sent += chunk.length;
        if (!socket.write(chunk)) return void socket.once("drain", more);
      }
    };
    more();
  };
  const before = process.memoryUsage.rss();
  const guests = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const socket = await world.open({ servername: nameOf("scripted") });
      socket.pause();
      socket.write(`GET /endless HTTP/1.1\r\nHost: ${nameOf("scripted")}\r\n\r\n`);
      return socket;
    }),
  );
  await settled(() => sent, guests.length * MOST_ON_THE_WAY);
  expect(sent / guests.length).toBeLessThan(MOST_ON_THE_WAY);
  expect(process.memoryUsage.rss() - before).toBeLessThan(400 * 1024 * 1024);
  const [guest] = guests;
  let heard = 0;
  guest?.on("data", (chunk) => {
    heard += chunk.length;
  });
  guest?.resume();
  for (let left = 200 * SLOWNESS; heard < 16 * 1024 * 1024 && left > 0; left--) await pause(50);
  expect(heard).toBeGreaterThan(16 * 1024 * 1024);
  for (const socket of guests) socket.destroy();
});

test("an upload to an origin that does not read waits, and the guest that leaves ends it", async () => {
  let server: Socket | undefined;
  script = (socket) => {
    server = socket.pause();
  };
  const socket = await world.open({ servername: nameOf("scripted") });
  socket.write(`POST /u HTTP/1.1\r\nHost: ${nameOf("scripted")}\r\nContent-Length: 1000000000\r\n\r\n`);
  const chunk = Buffer.alloc(65_536);
  let sent = 0;
  const more = () => {
    while (socket.writable) {
      sent += chunk.length;
      if (!socket.write(chunk)) return void socket.once("drain", more);
    }
  };
  more();
  await settled(() => sent, MOST_UPLOADED);
  expect(sent).toBeLessThan(MOST_UPLOADED);
  socket.destroy();
  await pause(100);
  const gone = new Promise((resolve) => server?.once("close", resolve));
  server?.resume();
  await inTime(gone, "the end of the upload");
});

test("a guest that does not finish its handshake or the head of its request is cut off", async () => {
  const other = await startBoundWorld("127.31.52", {
    limits: { guestHandshakeMs: 300 * SLOWNESS, headMs: 600 * SLOWNESS },
  });
  await other.bind();
  const socket = await other.open();
  socket.resume().write("GET / HTTP/1.1\r\nHost");
  const raw = connect({ host: other.hosts[0], port: GATEWAY_PORTS.tls });
  raw.on("error", () => {}).resume();
  raw.write(await captureHello({ servername: "api.example" }));
  const ends = [socket, raw].map((one) => new Promise((resolve) => one.once("close", resolve)));
  await inTime(Promise.all(ends), "the end of both connections");
  await other.close();
});

test("a guest that is silent for too long is cut off, over both versions of HTTP, also after a request", async () => {
  const other = await startBoundWorld("127.31.51", { limits: { idleMs: 400 * SLOWNESS } });
  await other.bind();
  const idle = await other.open();
  idle.resume();
  idle.write("GET /a HTTP/1.1\r\nHost: api.example\r\n\r\n");
  other.origin.answer = (request, response) => void (request.url !== "/silent" && response.end("ok"));
  const waiting = await other.open();
  waiting.resume();
  waiting.write(
    "GET /a HTTP/1.1\r\nHost: api.example\r\n\r\nGET /silent HTTP/1.1\r\nHost: api.example\r\n\r\n",
  );
  const session = await other.session2();
  const stream = session.request({ ":path": "/silent", ":authority": "api.example" });
  stream.on("error", () => {}).resume();
  const ends = [waiting, session].map((one) => new Promise((resolve) => one.once("close", resolve)));
  await inTime(Promise.all(ends), "the end of both connections");
  await inTime(new Promise((resolve) => setTimeout(resolve, 100)), "a moment");
  expect(idle.closed).toBe(false);
  await other.close();
});

test("no log line and no error has the credential", async () => {
  const lines: string[] = [];
  const log = createLog("test", "silent");
  for (const level of ["debug", "info", "warn", "error"] as const)
    log[level] = ((...line: unknown[]) =>
      lines.push(JSON.stringify(line) + String((line[0] as { err?: Error }).err?.stack))) as never;
  const other = await startBoundWorld("127.31.48", { log, limits: { answerMs: 300 * SLOWNESS } });
  await other.bind();
  other.origin.answer = (_request, response) => void response.socket?.destroy();
  await other.ask().catch(() => {});
  other.origin.answer = () => {};
  await other.ask().catch(() => {});
  await other.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  // A fault of the gateway itself, while it searches an answer for the credential.
  const fault = vi.spyOn(Credential.prototype, "isIn").mockImplementation(() => {
    throw new Error("a fault with a trace");
  });
  other.origin.answer = (_request, response) => void response.end("ok");
  await other.ask().catch(() => {});
  expect(fault).toHaveBeenCalled();
  fault.mockRestore();
  expect(lines.join("\n")).toContain("a fault with a trace");
  expect(lines.join("\n")).not.toContain(SECRET.slice(0, 12));
  for (const form of ["hex", "base64"] as const)
    expect(lines.join("\n")).not.toContain(Buffer.from(SECRET).toString(form).slice(0, 16));
  await other.close();
});
