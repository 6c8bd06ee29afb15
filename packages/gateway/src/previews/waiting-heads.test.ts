import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent, request } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  closedOf,
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  openUpgrade,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

const BOUNDS = { connections: 8, heads: 4 };

let folder: string;
let guest: Guest;
let gateway: Gateway;
let preview: Exposed;
let floods: Socket[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "previews-heads-"));
  execFileSync(
    "openssl",
    [
      ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
      ["-subj", "/CN=localhost", "-keyout", join(folder, "tls.key"), "-out", join(folder, "tls.crt")],
    ].flat(),
    { stdio: "ignore" },
  );
  guest = await startGuest(
    (_, response) => response.end("answered"),
    (_, socket) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
      socket.pipe(socket);
    },
  );
});
afterEach(async () => {
  for (const socket of floods) socket.destroy();
  floods = [];
  await gateway.previews.close();
});
afterAll(async () => {
  await stopGuest(guest);
  rmSync(folder, { recursive: true });
});

/** Connections that send these bytes and no more, one after the other. */
async function flood(count: number, bytes: string | Buffer): Promise<void> {
  for (let i = 0; i < count; i++) {
    const socket = connect(gateway.port, "127.0.0.1");
    socket.on("error", () => undefined);
    floods.push(socket);
    await new Promise<void>((resolve) => socket.once("connect", () => socket.write(bytes, () => resolve())));
  }
}

/** The guest's answer over the agent's connection, and whether that one was open before. */
function ask(agent: Agent): Promise<{ status?: number | undefined; isReused: boolean }> {
  return new Promise((resolve, reject) => {
    const outgoing = (agent instanceof TlsAgent ? tlsRequest : request)({
      host: "127.0.0.1",
      port: gateway.port,
      path: `/?t=${preview.token}`,
      headers: { host: preview.host },
      rejectUnauthorized: false,
      agent,
    });
    outgoing.on("error", reject);
    outgoing.on("response", (answer) => {
      answer.resume();
      answer.once("end", () => resolve({ status: answer.statusCode, isReused: outgoing.reusedSocket }));
    });
    outgoing.end();
  });
}

/** The first bytes of a TLS handshake, and no more. */
const HALF_HELLO = Buffer.from("160301020001", "hex");
const kinds = [
  { name: "in the clear", isTls: false, half: "GET / HTTP/1.1\r\nHost: a\r\n", newAgent: Agent },
  { name: "over TLS", isTls: true, half: HALF_HELLO, newAgent: TlsAgent },
];

describe.each(kinds)("more half heads than there may be connections, $name", ({ isTls, half, newAgent }) => {
  async function start(): Promise<void> {
    const tls = { certFile: join(folder, "tls.crt"), keyFile: join(folder, "tls.key") };
    gateway = await startGateway({ bounds: BOUNDS, ...(isTls ? { secure: true, tls } : {}) });
    preview = expose(gateway, guest);
  }

  test("keep out nobody who sends a whole one: the oldest goes for each that comes", async () => {
    await start();
    await flood(20, half);
    const agent = new newAgent({ keepAlive: false });
    expect(await ask(agent)).toMatchObject({ status: 200 });
    await Promise.all(floods.slice(0, 16).map(closedOf));
    expect(floods.slice(17).map((socket) => socket.closed)).toEqual([false, false, false]);
  });

  test("leave open what was answered before", async () => {
    await start();
    const agent = new newAgent({ keepAlive: true });
    expect(await ask(agent)).toEqual({ status: 200, isReused: false });
    await flood(20, half);
    await closedOf(floods[15] as Socket);
    expect(await ask(agent)).toEqual({ status: 200, isReused: true });
    agent.destroy();
  });
});

test("half heads leave open WebSockets open", async () => {
  gateway = await startGateway({ bounds: BOUNDS });
  preview = expose(gateway, guest);
  const { socket, head } = await openUpgrade(gateway, preview.host, `/?t=${preview.token}`);
  expect(head).toContain("101 Switching Protocols");
  await flood(20, "GET / HTTP/1.1\r\n");
  await closedOf(floods[15] as Socket);
  const echo = new Promise((resolve) => socket.once("data", (bytes) => resolve(bytes.toString())));
  socket.write("still here");
  expect(await echo).toBe("still here");
  socket.destroy();
});

test("visitors without access are refused, and keep no connection", async () => {
  gateway = await startGateway({ bounds: BOUNDS });
  preview = expose(gateway, guest);
  await flood(20, `GET / HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`);
  await Promise.all(floods.map(closedOf));
  const agent = new Agent({ keepAlive: true });
  expect(await ask(agent)).toMatchObject({ status: 200 });
  expect(await ask(agent)).toEqual({ status: 200, isReused: true });
  agent.destroy();
});
