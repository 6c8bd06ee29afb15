/** Requests sent ahead on one connection, and how the connection ends: byte by byte, over TCP. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { fastify } from "fastify";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { takeTurns } from "./turns.ts";

let control: Control;
let port: number;
beforeAll(async () => {
  control = await startControl();
  port = Number(new URL(await control.app.server.listen({ host: "127.0.0.1", port: 0 })).port);
});
afterEach(() => {
  control.node.onExec = (_call, output) => output().exit();
  return control.destroyAll();
});
afterAll(() => control.close());

const AUTH = "authorization: Bearer KEY";
const HEALTH = request("GET /v1/healthz HTTP/1.1");
const NO_PATH = request("GET /v1/none HTTP/1.1", AUTH);
const CREATE = create();
/** More than the system keeps for a connection whose other end does not read. */
const LONG = 24 * 1024 * 1024;

const SAID_BYTES = 2 * 1024 * 1024;
const PIECE_BYTES = 32 * 1024;

function request(...head: string[]): string {
  return `${[...head, "host: x", "", ""].join("\r\n")}`;
}

function create(...more: string[]): string {
  const head = ["POST /v1/sessions HTTP/1.1", AUTH, "content-length: 2"];
  return `${request(...head, ...more)}{}`;
}

interface Client {
  socket: Socket;
  text: () => string;
  statuses: () => number[];
  /** Rejects when the connection is reset. */
  closed: Promise<void>;
}

function open(at = port): Client {
  const socket = connect(at, "127.0.0.1");
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk.toString();
  });
  const closed = new Promise<void>((resolve, reject) => {
    socket.once("error", reject).once("close", () => resolve());
  });
  closed.catch(() => {});
  const statuses = () => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status));
  return { socket, text: () => text, statuses, closed };
}

function send({ socket }: Client, ...parts: string[]): void {
  socket.write(parts.join("").replaceAll("KEY", control.key));
}

async function sessions(): Promise<number> {
  return (await control.ask("GET /v1/sessions")).body.sessions.length;
}

test("a request behind one that was refused with its body unread is answered after it", async () => {
  const client = open();
  send(client, request("POST /v1/sessions HTTP/1.1", "content-length: 2"), "{}", HEALTH, NO_PATH);
  await eventually(() => expect(client.statuses()).toEqual([401, 200, 404]));
  client.socket.destroy();
});

test("a request behind one whose body is no JSON object is answered after it, on the same connection", async () => {
  const bodies = [
    "{",
    '{"size"',
    "[]",
    "null",
    "7",
    '"x"',
    "{}}",
    "\xff",
    `${"[".repeat(200)}`,
    '{"__proto__":{}}',
  ];
  const client = open();
  const bad = bodies.map((body) => {
    const length = Buffer.byteLength(body);
    return request("POST /v1/sessions HTTP/1.1", AUTH, `content-length: ${length}`) + body;
  });
  send(client, ...bad.flatMap((one) => [one, HEALTH]));
  await eventually(() => expect(client.statuses()).toEqual(bad.flatMap(() => [400, 200])));
  expect(client.text().match(/"code":"validation"/g)).toHaveLength(bad.length);
  client.socket.destroy();
});

test.each([
  ["a body that is too large", request("POST /v1/sessions HTTP/1.1", AUTH, `content-length: ${LONG}`)],
  [
    "a chunked one",
    `${request("POST /v1/sessions HTTP/1.1", AUTH, "transfer-encoding: chunked")}ffffffff\r\n`,
  ],
  ["an expectation", request("POST /v1/sessions HTTP/1.1", AUTH, "expect: x", `content-length: ${LONG}`)],
  ["what is no HTTP", "hello there\r\n\r\n"],
])("a client that writes to its end before it reads gets the refusal of %s", async (_title, head) => {
  const client = open();
  client.socket.pause();
  send(client, head);
  client.socket.write(Buffer.alloc(LONG, " "));
  await new Promise((resolve) => client.socket.write(HEALTH, resolve));
  client.socket.resume();
  await client.closed;
  expect(client.statuses()).toEqual([400]);
  expect(client.text()).toMatch(/^connection: close\r$/im);
});

test("a client that writes to its end before it reads gets a refusal that came once its body had stopped the reading", async () => {
  const server = fastify();
  onTestFinished(() => server.close());
  takeTurns(server);
  server.addHook("onRequest", async ({ raw }, reply) => {
    await once(raw.socket, "pause");
    return reply.code(401).header("connection", "close").send();
  });
  const client = open(Number(new URL(await server.listen({ host: "127.0.0.1", port: 0 })).port));
  client.socket.pause();
  send(client, request("POST / HTTP/1.1", `content-length: ${LONG}`));
  await new Promise((resolve) => client.socket.write(Buffer.alloc(LONG), resolve));
  client.socket.resume();
  await client.closed;
  expect(client.statuses()).toEqual([401]);
});

test("what follows the last request of a connection is not carried out", async () => {
  for (const [last, status] of [
    [create("expect: x"), 400],
    [create("connection: close"), 200],
  ] as const) {
    const before = await sessions();
    const client = open();
    send(client, last, CREATE, CREATE);
    await client.closed;
    expect(client.statuses()).toEqual([status]);
    expect((await sessions()) - before).toBe(status === 200 ? 1 : 0);
  }
});

test("what cannot be read is refused after the requests before it are answered", async () => {
  for (const broken of ["hello there\r\n\r\n", `${create("transfer-encoding: chunked")}`]) {
    const client = open();
    send(client, CREATE, NO_PATH, broken, HEALTH);
    await client.closed;
    expect(client.statuses()).toEqual([200, 404, 400]);
  }
});

test("a body that breaks off while requests before it are answered is refused after them", async () => {
  const client = open();
  const chunked = request("POST /v1/sessions HTTP/1.1", AUTH, "transfer-encoding: chunked");
  send(client, CREATE, chunked, "zz\r\n");
  await client.closed;
  expect(client.statuses()).toEqual([200, 400]);
  expect(await sessions()).toBe(1);
});

test("a request that was answered before its body broke off gets no second answer", async () => {
  const client = open();
  send(client, request("POST /v1/sessions HTTP/1.1", "transfer-encoding: chunked"));
  await eventually(() => expect(client.statuses()).toEqual([401]));
  send(client, "zz\r\n", HEALTH);
  await client.closed;
  expect(client.statuses()).toEqual([401]);
});

const PTY = [`GET /v1/sessions/${"a".repeat(21)}/pty HTTP/1.1`, "connection: Upgrade", "upgrade: websocket"];
const CONNECT = request("CONNECT x:443 HTTP/1.1");

test("an upgrade behind requests that are not answered yet is refused after them", async () => {
  const client = open();
  send(client, CREATE, HEALTH, request(...PTY, AUTH));
  await client.closed;
  expect(client.statuses()).toEqual([200, 200, 400]);
  expect(client.text()).toContain("nothing before it that is not answered yet");
});

test("an upgrade behind a long answer takes nothing from it", async () => {
  const { id, body } = await talkative();
  const client = open();
  const exec = request(`POST /v1/sessions/${id}/exec HTTP/1.1`, AUTH, `content-length: ${body.length}`);
  client.socket.pause();
  send(client, exec, body, request(...PTY, AUTH));
  setTimeout(() => client.socket.resume(), 500);
  await client.closed;
  expect(client.statuses()).toEqual([200, 400]);
  expect(client.text()).toContain("x".repeat(SAID_BYTES));
});

test("CONNECT behind a request that is not answered yet ends the connection, and nothing else", async () => {
  const client = open();
  send(client, CREATE, CONNECT);
  await client.closed;
  expect(client.statuses()).toEqual([]);
  const next = open();
  send(next, HEALTH, request("GET /v1/healthz HTTP/1.1", "connection: close"));
  await next.closed;
  expect(next.statuses()).toEqual([200, 200]);
});

test("a path that cannot be decoded waits for its turn as well", async () => {
  const { client, end } = await behindCommand(request("GET /v1/sessions/%zz HTTP/1.1", AUTH), HEALTH);
  expect(client.statuses()).toEqual([]);
  end();
  await eventually(() => expect(client.statuses()).toEqual([200, 404, 200]));
  client.socket.destroy();
});

test("a client that sends too far ahead loses its connection, and nobody else anything", async () => {
  const { client } = await behindCommand(HEALTH.repeat(62), request("GET /v1/sessions/%zz HTTP/1.1", AUTH));
  send(client, HEALTH, CONNECT);
  await client.closed;
  expect(client.statuses()).toEqual([]);
  const next = open();
  send(next, HEALTH);
  await eventually(() => expect(next.statuses()).toEqual([200]));
  next.socket.destroy();
});

/** A session whose commands say much at once. */
async function talkative(): Promise<{ id: string; body: string }> {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => {
    const out = output();
    for (let said = 0; said < SAID_BYTES; said += PIECE_BYTES) out.stdout("x".repeat(PIECE_BYTES));
    out.exit();
  };
  return { id, body: JSON.stringify({ command: ["true"] }) };
}

/** Sends a command that runs until the test ends it, and more behind it. */
async function behindCommand(...more: string[]): Promise<{ client: Client; end: () => void }> {
  const id = await control.createLive();
  const running = Promise.withResolvers<() => void>();
  control.node.onExec = (_call, output) => {
    const out = output();
    running.resolve(() => out.exit());
  };
  const client = open();
  const body = JSON.stringify({ command: ["true"] });
  const exec = request(`POST /v1/sessions/${id}/exec HTTP/1.1`, AUTH, `content-length: ${body.length}`);
  send(client, exec, body, ...more);
  return { client, end: await running.promise };
}

test("requests of one connection are handled one after the other", async () => {
  const { client, end } = await behindCommand(CREATE);
  expect(await sessions()).toBe(1);
  end();
  await eventually(() => expect(client.statuses()).toEqual([200, 200]));
  expect(await sessions()).toBe(2);
  client.socket.destroy();
});

test("a request that waits for its turn is not carried out when its client leaves", async () => {
  const { client, end } = await behindCommand(CREATE);
  client.socket.destroy();
  await client.closed;
  end();
  expect(await sessions()).toBe(1);
});
