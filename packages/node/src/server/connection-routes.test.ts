import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { glob, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import type { ConnectionLine, SessionConnections } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { type FastifyInstance, fastify } from "fastify";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createNetwork } from "../app.ts";
import type { Slot } from "../host/slots.ts";
import { machineDir } from "../machines/journal.ts";
import { writeNetwork, writePins } from "../machines/network-journal.ts";
import { MachineTable } from "../machines/table.ts";
import { OPEN_NETWORK } from "../network/kernel-policy.ts";
import type { NodeNetwork } from "../network/node-network.ts";
import { writePreviews } from "../network/previews.ts";
import { registerGatewayRoutes } from "./gateway-routes.ts";
import { registerNetworkRoutes } from "./network-routes.ts";
import { refusalOf } from "./refusals.ts";

const SESSION = "aaaaaaaaaaaaaaaaaaaaa";
const CANARY = "canary-9f8e7d6c5b4a";
const MOST_CONNECTIONS = 16;
const LONGEST_VALUE = 8_192;
const slot = { number: 1, netns: "no-such-namespace", hostAddress: "192.0.2.2", machineAddress: "192.0.2.3" };

let dir: string;
let network: NodeNetwork;
let control: FastifyInstance;
let gatewayServer: FastifyInstance;

beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "connection-routes-"));
  await mkdir(machineDir(dir, `${SESSION}-1`), { recursive: true });
  // Everything that any part of the daemon logs, at the lowest level.
  const logger = { level: "trace", stream: createWriteStream(path.join(dir, "log")) };
  control = fastify({ logger });
  const log = control.log as unknown as Log;
  network = createNetwork({
    host: { never: [], resolvers: ["192.0.2.53"], systemResolvers: [] },
    ...{ closeSmtp: false, expectGatewayMs: 0, log },
    keep: (machineId, kept) => writeNetwork(dir, machineId, kept),
    keepPins: (machineId, pins) => writePins(dir, machineId, pins),
    previews: { keep: (table) => writePreviews(dir, table) },
  });
  control.setErrorHandler((error, _request, reply) => {
    const { status, body } = refusalOf(error, log);
    return reply.code(status).send(body);
  });
  registerNetworkRoutes(control, { table: new MachineTable({ memoryKillOf: () => undefined }), network });
  gatewayServer = fastify({ logger, forceCloseConnections: true });
  registerGatewayRoutes(gatewayServer, network);
  await gatewayServer.listen({ path: path.join(dir, "gateway.sock") });
});

afterEach(async () => {
  await gatewayServer.close();
  await control.close();
  await rm(dir, { recursive: true });
});

const connectionOf = (secret: string) => ({
  name: "api",
  host: "api.example",
  methods: ["GET"],
  paths: ["/*"],
  header: { name: "Authorization", value: secret },
  generation: 1,
  expires_at: "2030-01-01T00:00:00Z",
});

const bodyOf = (version: number, connections = [connectionOf(`Bearer ${CANARY}`)]): SessionConnections => ({
  ...{ session_id: SESSION, version, connections, tombstones: [] },
  ca: { certificate_pem: "certificate", key_pem: `key ${CANARY}` },
});

async function put(url: string, payload: object | string) {
  const headers = { "content-type": "application/json" };
  const answer = await control.inject({ method: "PUT", url, headers, payload });
  return { status: answer.statusCode, body: answer.json() };
}

const putSession = (body: object | string, id = SESSION) => put(`/v1/connections/${id}`, body);
const renew = (version: number) => put("/v1/connections", { sessions: [{ session_id: SESSION, version }] });

/** Machines with an open policy need no rules of their own in the kernel. */
async function startMachine(): Promise<void> {
  network.networks.addPrepared(slot as Slot, "allow");
  await network.networks.assign(slot as Slot, `${SESSION}-1`, OPEN_NETWORK);
}

/** A gateway that confirms everything, with the lines that it was sent. */
async function connectGateway(): Promise<ConnectionLine[]> {
  const socketPath = path.join(dir, "gateway.sock");
  const call = request({ socketPath, path: "/v1/connections", agent: false });
  call.on("error", () => {}).end();
  const [response] = (await once(call, "response")) as [IncomingMessage];
  const lines: ConnectionLine[] = [];
  response.on("error", () => {});
  createInterface({ input: response })
    .on("error", () => {})
    .on("line", (text) => {
      const line = JSON.parse(text) as ConnectionLine;
      lines.push(line);
      if (line.type === "lease") return;
      const payload = { seq: line.seq };
      void gatewayServer.inject({ method: "POST", url: "/v1/connections/applied", payload });
    });
  return lines;
}

it("go from control to the gateway, and the answer waits for its confirmation", async () => {
  await startMachine();
  const lines = await connectGateway();
  expect(await renew(4)).toEqual({ status: 200, body: { session_ids: [SESSION] } });
  expect(await putSession(bodyOf(4))).toEqual({ status: 200, body: { version: 4, is_leased: true } });
  expect(await putSession(bodyOf(3))).toEqual({ status: 200, body: { version: 4, is_leased: true } });
  expect(await renew(4)).toEqual({ status: 200, body: { session_ids: [] } });
  await expect.poll(() => lines.filter(({ type }) => type === "lease").length).toBe(2);
  expect(lines.map(({ type }) => type)).toEqual(["only", "session", "lease", "lease"]);
  expect(lines[1]).toEqual({ type: "session", seq: 2, session: bodyOf(4) });
});

it("are known to the gateway once a start has waited for it", async () => {
  await putSession(bodyOf(1));
  const lines = await connectGateway();
  await startMachine();
  await network.networks.known(slot as Slot, 5_000 * SLOWNESS);
  expect(lines).toMatchObject([{ type: "session", session: { version: 1 } }]);
});

it("may be as many and as long as the contract allows", async () => {
  const most = Array.from({ length: MOST_CONNECTIONS }, () => connectionOf("x".repeat(LONGEST_VALUE)));
  expect(await putSession(bodyOf(1, most))).toMatchObject({ status: 200 });
  expect(await putSession(bodyOf(2, [...most, connectionOf("x")]))).toMatchObject({ status: 400 });
});

it("are refused of another session than the path names, and in any other form", async () => {
  const refusals = await Promise.all([
    putSession(bodyOf(1), "another"),
    putSession({ ...bodyOf(1), version: 0 }),
    putSession(`{"${CANARY}`),
    putSession(bodyOf(1, [connectionOf(`${CANARY}\n`)])),
    put("/v1/connections", { sessions: [{ session_id: SESSION }] }),
  ]);
  for (const { status, body } of refusals) {
    expect([status, body.code]).toEqual([400, "invalid"]);
    expect(JSON.stringify(body)).not.toContain(CANARY);
  }
});

describe("a secret in Connections", () => {
  async function filesWith(text: string): Promise<string[]> {
    const files = await Array.fromAsync(glob("**/*", { cwd: dir, withFileTypes: true }));
    const found = files.filter((file) => file.isFile()).map((file) => path.join(file.parentPath, file.name));
    const texts = await Promise.all(found.map(async (file) => [file, await readFile(file, "utf8")] as const));
    return texts.filter(([, content]) => content.includes(text)).map(([file]) => path.relative(dir, file));
  }

  it("is in no file that the node writes, and in no line of its log", async () => {
    await startMachine();
    const lines = await connectGateway();
    await renew(1);
    await putSession(bodyOf(1));
    expect(JSON.stringify(lines)).toContain(CANARY);
    await putSession(bodyOf(2, [connectionOf(`${CANARY}\n`)]));
    await putSession(`{"${CANARY}`);
    // The kernel cannot take the change; the node keeps it in a file.
    const spec = { ...OPEN_NETWORK, generation: 2, bound_hosts: ["bound.example"] };
    await network.networks.change(`${SESSION}-1`, spec).catch(() => {});
    void put("/v1/previews", { version: 1, routes: [] });
    await expect.poll(() => filesWith('"routes"')).toEqual(["previews.json"]);
    void network.networks.release(slot as Slot);
    await expect.poll(() => filesWith("/v1/connections")).toEqual(["log"]);
    expect(await filesWith("bound.example")).toEqual([
      path.relative(dir, path.join(machineDir(dir, `${SESSION}-1`), "network.json")),
    ]);
    expect(await filesWith(CANARY)).toEqual([]);
    await writePreviews(dir, { version: 2, routes: [], ...{ canary: CANARY } });
    expect(await filesWith(CANARY)).toEqual(["previews.json"]);
  });
});
