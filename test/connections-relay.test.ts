/** Connections on their whole way from control's calls through the node to the gateway, whose guest is a real TLS client. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { SessionConnections } from "@vivarium/contract/gateway";
import { createLog } from "@vivarium/kit/log";
import { type FastifyInstance, fastify } from "fastify";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { followConnections } from "../packages/gateway/src/connections/follow-connections.ts";
import { NodeClient } from "../packages/gateway/src/tables/node-client.ts";
import {
  askOver,
  type BoundWorld,
  connection,
  HOST,
  startBoundWorld,
  valuesIn,
} from "../packages/gateway/test-support/bound-world.ts";
import { inTime } from "../packages/gateway/test-support/in-time.ts";
import { createNetwork } from "../packages/node/src/app.ts";
import type { Slot } from "../packages/node/src/host/slots.ts";
import { MachineTable } from "../packages/node/src/machines/table.ts";
import { OPEN_NETWORK } from "../packages/node/src/network/kernel-policy.ts";
import type { NodeNetwork } from "../packages/node/src/network/node-network.ts";
import { registerGatewayRoutes } from "../packages/node/src/server/gateway-routes.ts";
import { registerNetworkRoutes } from "../packages/node/src/server/network-routes.ts";
import { answerRefusals } from "../packages/node/src/server/refusals.ts";

const SESSION = "ses_1";
const log = createLog("test", "silent");
const slot = { number: 1, netns: "none", hostAddress: "192.0.2.2", machineAddress: "192.0.2.3" } as Slot;
let world: BoundWorld;
let dir: string;
let network: NodeNetwork;
let control: FastifyInstance;
let gatewaySide: FastifyInstance;
let stopping: AbortController;
let following: Promise<void>;
let version = 0;

/** A process of the node, which finds the session's machine. Its rules in the kernel are not part of this test. */
async function startNode(): Promise<void> {
  network = createNetwork({
    host: { never: [], resolvers: ["192.0.2.53"], systemResolvers: [] },
    ...{ closeSmtp: false, expectGatewayMs: 0, keep: async () => {}, log },
  });
  network.networks.addPrepared(slot, "allow");
  await network.networks.assign(slot, `${SESSION}-1`, OPEN_NETWORK);
  control = fastify();
  answerRefusals(control);
  registerNetworkRoutes(control, { table: new MachineTable({ memoryKillOf: () => undefined }), network });
  gatewaySide = fastify({ forceCloseConnections: true });
  registerGatewayRoutes(gatewaySide, network);
  await gatewaySide.listen({ path: path.join(dir, "node.sock") });
}

async function stopNode(): Promise<void> {
  await gatewaySide.close();
  await control.close();
  await rm(path.join(dir, "node.sock"), { force: true });
}

beforeAll(async () => {
  world = await startBoundWorld("127.31.56");
  dir = await mkdtemp(path.join(tmpdir(), "connections-"));
});
afterAll(async () => {
  await world.close();
  await rm(dir, { recursive: true });
});
beforeEach(async () => {
  world.origin.received.length = 0;
  await startNode();
  stopping = new AbortController();
  const node = new NodeClient(path.join(dir, "node.sock"));
  following = followConnections({ node, bound: world.bound, log }, stopping.signal);
  await expect.poll(() => network.connections.stream.isConnected).toBe(true);
});
afterEach(async () => {
  stopping.abort();
  await stopNode();
  await following;
  await world.bound.drop(SESSION);
});

const bodyOf = (more: Partial<SessionConnections>): SessionConnections => ({
  ...{ session_id: SESSION, version: ++version, connections: [], tombstones: [] },
  ca: { certificate_pem: world.ca.certificatePem, key_pem: world.ca.keyPem },
  ...more,
});
const active = () => bodyOf({ connections: [connection({ generation: version + 1 })] });
const revoked = () => bodyOf({ tombstones: [{ name: "api", host: HOST, state: "revoked" }] });

async function put(body: SessionConnections) {
  const answer = await control.inject({ method: "PUT", url: `/v1/connections/${SESSION}`, payload: body });
  return { status: answer.statusCode, body: answer.json() };
}

async function renew(listed = version): Promise<string[]> {
  const payload = { sessions: [{ session_id: SESSION, version: listed }] };
  const answer = await control.inject({ method: "PUT", url: "/v1/connections", payload });
  return answer.json().session_ids;
}

const injected = () => world.origin.received.flatMap((request) => valuesIn(request, "authorization"));

test("a credential that control sent is injected, and once its revocation is confirmed its sockets are closed", async () => {
  expect(await renew(1)).toEqual([SESSION]);
  expect(await put(active())).toEqual({ status: 200, body: { version, is_leased: true } });
  await expect.poll(async () => (await world.ask()).status).toBe(200);
  expect(injected()[0]).toContain("Bearer sk-live");
  const socket = await world.open();
  const closed = new Promise<string>((resolve) => socket.once("close", () => resolve("closed")));
  await inTime(
    new Promise((resolve) => {
      world.origin.answer = (_request, response) => void response.write("begun");
      socket.once("data", resolve);
      askOver(socket, "/v1/stream").catch(() => {});
    }),
    "the beginning of an answer",
  );
  expect(socket.closed).toBe(false);
  expect(await put(revoked())).toMatchObject({ status: 200 });
  const requests = world.origin.received.length;
  expect(await inTime(closed, "the end of the connection")).toBe("closed");
  expect(await world.ask()).toMatchObject({ status: 403 });
  expect(world.origin.received).toHaveLength(requests);
});

test("a new process of the node knows no credential, asks control for them, and cuts no request meanwhile", async () => {
  world.origin.answer = (_request, response) => void response.end("ok");
  await renew();
  await put(active());
  const socket = await world.open();
  expect(await askOver(socket, "/v1/first").then(({ status }) => status, String)).toBe(200);
  const kept = await world.open();
  await stopNode();
  await startNode();
  await expect.poll(() => network.connections.stream.isConnected).toBe(true);
  expect(await renew()).toEqual([SESSION]);
  expect(await askOver(kept, "/v1/second").then(({ status }) => status, String)).toBe(200);
  expect(await put(active())).toMatchObject({ status: 200 });
  expect(await renew()).toEqual([]);
  expect((await world.ask()).status).toBe(200);
  // A process that control does not answer with the newest version takes the session from the gateway.
  await stopNode();
  await startNode();
  await expect.poll(() => network.connections.stream.isConnected).toBe(true);
  await renew();
  await renew();
  await expect.poll(() => world.bound.find(SESSION, HOST)).toBeUndefined();
});

test("the gateway forgets the credentials of a session whose machine is gone", async () => {
  await renew();
  await put(active());
  expect(world.bound.find(SESSION, HOST)).toBeDefined();
  void network.networks.release(slot);
  await expect.poll(() => world.bound.find(SESSION, HOST)).toBeUndefined();
});
