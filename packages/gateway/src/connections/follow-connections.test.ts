import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { ConnectionLine, SessionConnections } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  askOver,
  type BoundWorld,
  connection,
  HOST,
  SECRET,
  startBoundWorld,
  valuesIn,
} from "../../test-support/bound-world.ts";
import { inTime, until } from "../../test-support/in-time.ts";
import { NodeClient } from "../tables/node-client.ts";
import { type FollowDeps, followConnections } from "./follow-connections.ts";

const SESSION = "ses_1";
let world: BoundWorld;
let folder: string;
let socketPath: string;
let node: Server;
let streams: ServerResponse[];
let confirmed: number[];
let onConfirmed: (seq: number) => void;
/** How many confirmations are still to be lost. */
let lost: number;
let logged: unknown[][];
let stopping: AbortController;
let following: Promise<void>;
let version = 0;
let generation = 0;

async function startNode(): Promise<void> {
  streams = [];
  node = createServer(async (request, response) => {
    if (request.url === "/v1/connections") {
      response.writeHead(200, { "content-type": "application/x-ndjson" }).flushHeaders();
      return void streams.push(response);
    }
    expect(request.url).toBe("/v1/connections/applied");
    const { seq } = JSON.parse(await text(request));
    if (lost > 0) {
      lost--;
      return void response.writeHead(500).end();
    }
    onConfirmed(seq);
    confirmed.push(seq);
    response.writeHead(204).end();
  });
  node.listen(socketPath);
  await once(node, "listening");
}

async function stopNode(): Promise<void> {
  node.closeAllConnections();
  await new Promise((resolve) => node.close(resolve));
}

function follow(bound: FollowDeps["bound"] = world.bound): void {
  const note = (...line: unknown[]) => void logged.push(line);
  const log = { warn: note, error: note } as unknown as Log;
  stopping = new AbortController();
  following = followConnections({ node: new NodeClient(socketPath), bound, log }, stopping.signal);
}

/** Other Connections than those of the shared world follow the node. */
async function followWith(bound: FollowDeps["bound"]): Promise<void> {
  await until(() => streams.length === 1);
  stopping.abort();
  await following;
  follow(bound);
  await until(() => streams.length === 2);
}

beforeAll(async () => {
  world = await startBoundWorld("127.31.53");
  folder = await mkdtemp(path.join(tmpdir(), "gateway-test-"));
  socketPath = path.join(folder, "node.sock");
});
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  confirmed = [];
  logged = [];
  lost = 0;
  onConfirmed = () => {};
  world.origin.received.length = 0;
  world.origin.answer = (_request, response) => void response.end("ok");
  await startNode();
  follow();
});
afterEach(async () => {
  stopping.abort();
  await stopNode();
  await following;
  await world.bound.drop(SESSION);
});

const session = (more: Partial<SessionConnections> = {}): SessionConnections => ({
  ...{ session_id: SESSION, version: ++version, connections: [], tombstones: [] },
  ca: { certificate_pem: world.ca.certificatePem, key_pem: world.ca.keyPem },
  ...more,
});
/** The session with an active Connection of a new generation. */
const active = (secret = SECRET): SessionConnections => {
  const header = { name: "Authorization", value: `Bearer ${secret}` };
  return session({ connections: [connection({ generation: ++generation, header })] });
};
const revoked = () => session({ tombstones: [{ name: "api", host: HOST, state: "revoked" }] });
const sessionLine = (seq: number, sent = active()): ConnectionLine => ({
  type: "session",
  seq,
  session: sent,
});
/** A lease, and how much of it is left in the test of its end. */
const LEASE_MS = 20_000;
/** A request that is made at once arrives before that, on a busy host too. */
const LEFT_MS = Math.min(5_000 * SLOWNESS, LEASE_MS);
const leaseLine = (age_ms = 0): ConnectionLine => ({ type: "lease", age_ms });
const onlyLine = (seq: number, ...session_ids: string[]): ConnectionLine => ({
  ...{ type: "only", seq, session_ids },
});

async function send(...lines: (ConnectionLine | string)[]): Promise<void> {
  await until(() => streams.length > 0);
  const texts = lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line)));
  streams.at(-1)?.write(texts.map((line) => `${line}\n`).join(""));
}

const injected = () => world.origin.received.flatMap((request) => valuesIn(request, "authorization"));

test("a request of the guest reaches the origin with the credential that the node sent, in its newest form", async () => {
  await send(sessionLine(1), onlyLine(2, SESSION), leaseLine(), "");
  await until(() => confirmed.includes(2));
  expect((await world.ask()).status).toBe(200);
  await send(sessionLine(3, active("another-secret")));
  await until(() => confirmed.includes(3));
  expect((await world.ask()).status).toBe(200);
  expect(injected()).toEqual([`Bearer ${SECRET}`, "Bearer another-secret"]);
  expect(confirmed).toEqual([...confirmed].sort((a, b) => a - b));
  expect(logged).toEqual([]);
});

test("a revocation is confirmed once every socket that used the credential is closed", async () => {
  await send(sessionLine(1), leaseLine());
  await until(() => confirmed.includes(1));
  const socket = await world.open();
  world.origin.answer = (_request, response) => void response.write("begun");
  const begun = new Promise((resolve) => socket.once("data", resolve));
  askOver(socket, "/v1/stream").catch(() => {});
  expect(String(await inTime(begun, "the beginning of an answer"))).toContain("200 OK");
  await until(() => world.origin.sockets.size === 1);
  expect(socket.destroyed).toBe(false);
  const closed = new Promise((resolve) => socket.once("close", resolve));
  let wasSent = 0;
  onConfirmed = () => {
    wasSent = world.origin.received.length;
    socket.write(`GET /after HTTP/1.1\r\nhost: ${HOST}\r\n\r\n`);
  };
  await send(sessionLine(2, revoked()));
  await until(() => confirmed.includes(2));
  await inTime(closed, "the end of the guest's connection");
  await until(() => world.origin.sockets.size === 0);
  expect(wasSent).toBe(1);
  expect(world.origin.received).toHaveLength(1);
  expect(await world.ask()).toMatchObject({ status: 403 });
});

test("sessions that the node no longer names are forgotten", async () => {
  await send(sessionLine(1), sessionLine(2, { ...active(), session_id: "ses_2" }), leaseLine());
  await until(() => confirmed.includes(2));
  await send(onlyLine(3, SESSION, "ses_3"));
  await until(() => confirmed.includes(3));
  expect(world.bound.find("ses_2", HOST)).toBeUndefined();
  expect((await world.ask()).status).toBe(200);
  await send(onlyLine(4));
  await until(() => confirmed.includes(4));
  expect(world.bound.find(SESSION, HOST)).toBeUndefined();
});

describe("a node that is away or starts anew", () => {
  test("leaves what is known in use, until it names the sessions again", async () => {
    await send(sessionLine(7), leaseLine());
    await until(() => confirmed.includes(7));
    await stopNode();
    expect((await world.ask()).status).toBe(200);
    await startNode();
    await send(leaseLine(1_000));
    expect((await world.ask()).status).toBe(200);
    expect(injected()).toHaveLength(2);
    confirmed = [];
    await send(onlyLine(1));
    await until(() => confirmed.includes(1));
    expect(world.bound.find(SESSION, HOST)).toBeUndefined();
  });

  test("is asked for everything again after a confirmation that was lost", async () => {
    lost = 1;
    await send(sessionLine(1));
    await until(() => streams.length === 2);
    expect(confirmed).toEqual([]);
    await send(sessionLine(2));
    await until(() => confirmed.includes(2));
  });
});

test("a lease counts from the moment of control's call, and lapses", async () => {
  // Leases of the earlier tests count in the gateway that they share.
  const lapsing = await startBoundWorld("127.31.54");
  await followWith(lapsing.bound);
  const ca = { certificate_pem: lapsing.ca.certificatePem, key_pem: lapsing.ca.keyPem };
  await send(sessionLine(1, { ...active(), ca }), leaseLine(LEASE_MS - LEFT_MS));
  await until(() => confirmed.includes(1));
  expect((await lapsing.ask()).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, LEFT_MS + 100));
  expect((await lapsing.ask()).status).toBe(502);
  await send(leaseLine(60_000));
  expect((await lapsing.ask()).status).toBe(502);
  await send(leaseLine());
  await expect.poll(async () => (await lapsing.ask()).status).toBe(200);
  await lapsing.close();
});

describe("a line that cannot be read", () => {
  const bad = (seq: number) => JSON.stringify({ ...sessionLine(seq, { ...active(), version: 0 }) });

  test.each([
    ["rubbish", () => `{"${SECRET}`],
    ["another shape", () => bad(2)],
  ])(
    "is not confirmed, nor one behind it, which counts all the same; then the node is asked anew: %s",
    async (_, line) => {
      await send(sessionLine(1), leaseLine());
      await until(() => confirmed.includes(1));
      await send(line(), sessionLine(3, active("another-secret")));
      await expect.poll(() => world.ask().then(injected)).toContain("Bearer another-secret");
      expect(confirmed).toEqual([1]);
      await until(() => streams.length === 2);
      await send(sessionLine(4));
      await until(() => confirmed.includes(4));
      expect(confirmed).toEqual([1, 4]);
      expect(JSON.stringify(logged)).toContain("cannot be read");
      expect(inspected(logged)).not.toContain(SECRET.slice(0, 12));
    },
  );
});

test("Connections that cannot be put in force leave their session without any, and hold up no other", async () => {
  const calls: string[] = [];
  await followWith({
    set: async ({ session_id, version: sent }) => {
      calls.push(`set ${session_id}`);
      if (sent === 1) throw new Error(SECRET);
    },
    drop: async (id) => void calls.push(`drop ${id}`),
    keepOnly: async () => {},
    renewLease: () => {},
  });
  await send(
    sessionLine(1, session({ session_id: "bad", version: 1 })),
    sessionLine(2, session({ session_id: "good", version: 2 })),
  );
  await until(() => confirmed.includes(2));
  expect(calls).toEqual(["set bad", "drop bad", "set good"]);
  expect(inspected(logged)).toContain("bad");
  expect(inspected(logged)).not.toContain(SECRET);
});

/** All text of logged values, also that of errors. */
function inspected(lines: unknown[][]): string {
  const all = (value: unknown): unknown =>
    value instanceof Error ? [value.message, value.stack, all(value.cause)] : value;
  return JSON.stringify(lines, (_key, value) => all(value));
}
