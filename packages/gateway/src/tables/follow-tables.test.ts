import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { type EgressRules, GATEWAY_PORTS, type GatewayTables } from "@vivarium/contract/gateway";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { captureHello } from "../../test-support/hello.ts";
import { until } from "../../test-support/in-time.ts";
import { deny, TestNameServer, TestServer } from "../../test-support/world.ts";
import { startEgress } from "../app.ts";
import { EgressLog } from "../egress-log/lines.ts";
import { CurrentTables } from "./current-tables.ts";
import { followTables } from "./follow-tables.ts";
import { NodeClient } from "./node-client.ts";

const PREFIX = "127.31.4";
const log = createLog("gateway-test", "silent");
let folder: string;
let socketPath: string;
let node: Server;
let streams: ServerResponse[];
let applied: number[];
let onApplied: (version: number) => void;
/** How many confirmations are still to be lost. */
let lost: number;
let tables: CurrentTables;
let egress: ReturnType<typeof startEgress>;
let stopping: AbortController;
let following: Promise<void>;
let names: TestNameServer;
const outside = new TestServer((bytes, socket) => socket.write(bytes));

async function startNode(): Promise<void> {
  streams = [];
  node = createServer(async (request, response) => {
    if (request.url === "/v1/tables") {
      response.writeHead(200, { "content-type": "application/x-ndjson" }).flushHeaders();
      streams.push(response);
      return;
    }
    const { version } = JSON.parse(await text(request));
    if (lost > 0) {
      lost--;
      return void response.writeHead(500).end();
    }
    onApplied(version);
    applied.push(version);
    response.writeHead(204).end();
  });
  node.listen(socketPath);
  await once(node, "listening");
}

async function stopNode(): Promise<void> {
  node.closeAllConnections();
  await new Promise((resolve) => node.close(resolve));
}

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "gateway-test-"));
  socketPath = path.join(folder, "node.sock");
  applied = [];
  onApplied = () => {};
  lost = 0;
  await startNode();
  const tls = await outside.start(`${PREFIX}.80`);
  names = await new TestNameServer().start(`${PREFIX}.53`);
  names.script = (name) => [{ type: "A", name, ttl: 30, data: `${PREFIX}.80` }];
  const client = new NodeClient(socketPath);
  tables = new CurrentTables();
  egress = startEgress({ node: client, tables, egressLog: new EgressLog(), log, dialledPort: () => tls });
  stopping = new AbortController();
  following = followTables({ node: client, tables, settled: () => egress.settled(), log }, stopping.signal);
});

afterEach(async () => {
  stopping.abort();
  await stopNode();
  await following;
  egress.close();
  names.close();
  await new Promise((resolve) => outside.server.close(resolve));
  await rm(folder, { recursive: true });
});

function tablesOf(version: number, rules?: EgressRules, host = `${PREFIX}.10`): GatewayTables {
  const machine = { machine_id: "mch_1", session_id: "ses_1", generation: version };
  return {
    version,
    slots: [
      {
        host_address: host,
        machine_address: `${PREFIX}.20`,
        ...(rules && { machine: { ...machine, egress: rules } }),
      },
    ],
    routes: [],
    never: ["10.0.0.0/8"],
    resolvers: [names.address],
  };
}

async function send(...sent: (GatewayTables | string)[]): Promise<void> {
  await until(() => streams.length > 0);
  const lines = sent.map((item) => (typeof item === "string" ? item : JSON.stringify(item)));
  streams.at(-1)?.write(lines.map((line) => `${line}\n`).join(""));
}

async function isListening(host: string): Promise<boolean> {
  const socket = connect({ host, port: GATEWAY_PORTS.http });
  const isOpen = await new Promise<boolean>((resolve) => {
    socket.on("connect", () => resolve(true));
    // A connection from an address without a machine is accepted and reset.
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code !== "ECONNREFUSED"));
  });
  socket.destroy();
  return isOpen;
}

test("tables are in force before they are confirmed: what listens, listens, and revoked flows are dead", async () => {
  let wasListening: Promise<boolean> = Promise.resolve(false);
  onApplied = () => {
    wasListening = isListening(`${PREFIX}.10`);
  };
  await send(tablesOf(1, deny("good.example")));
  await until(() => applied.length === 1);
  expect(await wasListening).toBe(true);

  const hello = await captureHello({ servername: "good.example" });
  const socket = connect({ host: `${PREFIX}.10`, port: GATEWAY_PORTS.tls });
  let isDead = false;
  let wasReceived = 0;
  socket.on("error", () => {});
  socket.on("close", () => {
    isDead = true;
  });
  socket.write(hello);
  await once(socket, "data");
  onApplied = () => {
    socket.write("after the confirmation");
    wasReceived = outside.received.length;
  };
  await send(tablesOf(2, deny("other.example")));
  await until(() => applied.includes(2) && isDead);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(outside.received.length).toBe(wasReceived);
});

test("a slot is listened for ahead of its machine, and no more once it is gone", async () => {
  await send(tablesOf(1));
  await until(() => applied.includes(1));
  expect(await isListening(`${PREFIX}.10`)).toBe(true);
  await send(tablesOf(2, deny(), `${PREFIX}.11`));
  await until(() => applied.includes(2));
  expect(await isListening(`${PREFIX}.10`)).toBe(false);
  expect(await isListening(`${PREFIX}.11`)).toBe(true);
});

test("a slot whose address is not there yet is tried again, and holds up no confirmation", async () => {
  const blocker = new TestServer();
  await blocker.start(`${PREFIX}.12`, GATEWAY_PORTS.http);
  const absent = tablesOf(1, deny(), `${PREFIX}.12`);
  absent.slots.push({ host_address: "203.0.113.77", machine_address: `${PREFIX}.21` });
  await send(absent);
  await until(() => applied.includes(1));
  blocker.connections = 0;
  await new Promise((resolve) => blocker.server.close(resolve));
  while (!(await isListening(`${PREFIX}.12`))) await new Promise((resolve) => setTimeout(resolve, 20));
  expect(blocker.connections).toBe(0);
});

describe("of tables that come quickly", () => {
  test("the newest is in force and confirmed, whatever was overtaken", async () => {
    const rows = Array.from({ length: 50 }, (_, at) => tablesOf(at + 1, deny(`n${at + 1}.example`)));
    await send(...rows);
    await until(() => applied.includes(50));
    expect(applied).toEqual([...applied].sort((a, b) => a - b));
    expect(tables.current()?.version).toBe(50);
  });

  test("signs of life are no tables, and lines may come in pieces", async () => {
    await send("", "", tablesOf(1), "");
    await until(() => applied.includes(1));
    const line = `${JSON.stringify(tablesOf(2))}\n`;
    streams.at(-1)?.write(line.slice(0, 20));
    await new Promise((resolve) => setTimeout(resolve, 20));
    streams.at(-1)?.write(line.slice(20));
    await until(() => applied.includes(2));
  });
});

test.each<[string, () => string]>([
  ["rubbish", () => "{"],
  ["another shape", () => JSON.stringify({ version: 2 })],
  [
    "a range that is none",
    () => JSON.stringify({ ...tablesOf(2, deny("b.example")), never: ["10.0.0.0/99"] }),
  ],
])("tables that cannot be understood are not confirmed, and the former stay: %s", async (_, line) => {
  await send(tablesOf(1, deny("a.example")));
  await until(() => applied.includes(1));
  await send(line());
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(tables.current()?.version).toBe(1);
  await send(tablesOf(3, deny("c.example")));
  await until(() => applied.includes(3));
  expect(applied).not.toContain(2);
});

test("a confirmation that is lost is made up for: the node is asked to send its tables anew", async () => {
  lost = 1;
  await send(tablesOf(1, deny("a.example")));
  // A node gives signs of life: it is not its silence that ends the stream.
  const signsOfLife = setInterval(() => streams[0]?.write("\n"), 1_000);
  await until(() => streams.length === 2);
  clearInterval(signsOfLife);
  expect(applied).toEqual([]);
  expect(tables.slotAt(`${PREFIX}.10`)?.machineId).toBe("mch_1");
  await send(tablesOf(1, deny("a.example")));
  await until(() => applied.length > 0);
  expect(applied).toEqual([1]);
});

test("while the node is away its last tables stay in force; what it sends when it is back counts", async () => {
  await send(tablesOf(7, deny("good.example")));
  await until(() => applied.includes(7));
  await stopNode();
  expect(tables.slotAt(`${PREFIX}.10`)?.machineId).toBe("mch_1");
  expect(await isListening(`${PREFIX}.10`)).toBe(true);
  await startNode();
  await send(tablesOf(1));
  await until(() => applied.includes(1));
  expect(tables.current()?.version).toBe(1);
  expect(tables.slotAt(`${PREFIX}.10`)).toBeUndefined();
});

test("pins of before are not believed of a node that came back", async () => {
  const sent = tablesOf(7, deny("good.example:5432"));
  await send(sent);
  await until(() => applied.includes(7));
  const pin = { until: 1, isOpen: Promise.resolve(true) };
  tables.slotAt(`${PREFIX}.10`)?.pins.add("good.example", ["198.51.100.1"], pin);
  const known = () => tables.slotAt(`${PREFIX}.10`)?.pins.find("good.example", "198.51.100.1", 1);
  await send({ ...sent, version: 8 });
  await until(() => applied.includes(8));
  expect(known()).toBeDefined();
  await stopNode();
  await startNode();
  await send({ ...sent, version: 1 });
  await until(() => applied.includes(1));
  expect(known()).toBeUndefined();
});
