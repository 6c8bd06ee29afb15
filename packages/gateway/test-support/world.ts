/**
 * Runs a gateway's egress on loopback for tests, with a node, a name server and servers of the outside that record what
 * they receive. Each test file has its own prefix of addresses, with one address per slot and server.
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { EgressEntry, EgressRules, Flows, GatewayTables, Pin } from "@vivarium/contract/gateway";
import { createLog, type Log } from "@vivarium/kit/log";
import { type Answer, decode, encode, type Packet } from "dns-packet";
import { type EgressParts, startEgress } from "../src/app.ts";
import type { BoundConnections } from "../src/connections/bound-connections.ts";
import { EgressLog } from "../src/egress-log/lines.ts";
import { CurrentTables } from "../src/tables/current-tables.ts";
import { NodeClient } from "../src/tables/node-client.ts";
import { until } from "./in-time.ts";

const silent = createLog("gateway-test", "silent");

export type Script = (name: string, type: string, question: Buffer) => Answer[] | Buffer | "silent" | number;

/** A name server. Its script returns records, a raw message, a response code, or "silent" for no answer. */
export class TestNameServer {
  readonly asked: { name: string; type: string; id: number; port: number; transport: "udp" | "tcp" }[] = [];
  script: Script = () => 3;
  address = "";
  readonly #udp = createSocket("udp4");
  readonly #tcp = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (bytes) => {
      const reply = this.#reply(bytes.subarray(2), "tcp", socket.remotePort ?? 0);
      if (!reply) return;
      const length = Buffer.alloc(2);
      length.writeUInt16BE(reply.length);
      socket.end(Buffer.concat([length, reply]));
    });
  });

  async start(address: string): Promise<this> {
    this.#udp.on("message", (message, peer) => {
      const reply = this.#reply(message, "udp", peer.port);
      if (reply) this.#udp.send(reply, peer.port, peer.address);
    });
    this.#udp.bind({ address });
    await once(this.#udp, "listening");
    const { port } = this.#udp.address();
    this.#tcp.listen(port, address);
    await once(this.#tcp, "listening");
    this.address = `${address}:${port}`;
    return this;
  }

  namesAsked(): string[] {
    return this.asked.map(({ name }) => name);
  }

  close(): void {
    this.#udp.close();
    this.#tcp.close();
  }

  #reply(message: Buffer, transport: "udp" | "tcp", port: number): Buffer | undefined {
    const { id = 0, questions = [] } = decode(message);
    const [question] = questions;
    if (!question) return undefined;
    this.asked.push({ name: question.name, type: question.type, id, port, transport });
    const scripted = this.script(question.name, question.type, message);
    if (scripted === "silent") return undefined;
    if (Buffer.isBuffer(scripted)) return scripted;
    const answer: Packet = { type: "response", id, questions };
    if (typeof scripted === "number") return encode({ ...answer, flags: scripted });
    return encode({ ...answer, answers: scripted });
  }
}

/** A node that records the gateway's calls. */
export class TestNode {
  readonly pins: Pin[] = [];
  readonly flows: Flows[] = [];
  pinStatus = 204;
  readonly server = createHttpServer((request, response) => void this.#serve(request, response));
  #folder = "";

  async start(): Promise<string> {
    this.#folder = await mkdtemp(path.join(tmpdir(), "gateway-test-"));
    const socketPath = path.join(this.#folder, "node.sock");
    this.server.listen(socketPath);
    await once(this.server, "listening");
    return socketPath;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await rm(this.#folder, { recursive: true });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = JSON.parse(await text(request));
    if (request.url === "/v1/flows") this.flows.push(body);
    if (request.url === "/v1/pins") this.pins.push(body);
    response.writeHead(request.url === "/v1/pins" ? this.pinStatus : 204).end();
  }
}

/** A TCP server outside, or one that must never be reached. Records what it received; `onBytes` answers. */
export class TestServer {
  received = Buffer.alloc(0);
  connections = 0;
  readonly server: Server;

  constructor(onBytes: (received: Buffer, socket: import("node:net").Socket) => void = () => {}) {
    this.server = createServer({ allowHalfOpen: true }, (socket) => {
      this.connections += 1;
      socket.on("error", () => {});
      socket.on("end", () => socket.end());
      socket.on("data", (bytes) => {
        this.received = Buffer.concat([this.received, bytes]);
        onBytes(bytes, socket);
      });
    });
  }

  async start(address: string, port = 0): Promise<number> {
    this.server.listen(port, address);
    await once(this.server, "listening");
    return (this.server.address() as AddressInfo).port;
  }
}

export interface World {
  tables: CurrentTables;
  names: TestNameServer;
  node: TestNode;
  egressLog: EgressLog;
  /** Host addresses of three slots: `.10` and `.11` have machines, `.12` is a slot without one. */
  hosts: [string, string, string];
  publicAddress: string;
  /** An address in the forbidden ranges. */
  privateAddress: string;
  /** The ports that the servers outside listen on, in place of 80 and 443. */
  outside: { http: number; tls: number };
  apply(change: {
    first?: EgressRules;
    second?: EgressRules;
    withoutFirst?: boolean;
    never?: string[];
    open?: GatewayTables["open"];
    /** Hosts that the tables name as bound for the first machine. */
    boundHosts?: string[];
  }): Promise<void>;
  bound: BoundConnections;
  /** Lines of the egress log since the last call, newest last. Resolves once they count at least this many events. */
  entries(atLeast?: number): Promise<EgressEntry[]>;
  close(): Promise<void>;
}

/** `prefix` is the first three numbers of a loopback address, such as `127.31.1`. */
export async function startWorld(
  prefix: string,
  outside: { http: number; tls: number },
  log: Log = silent,
  {
    dnsLimits,
    helloMs,
    interceptor,
    onRequest,
  }: Pick<EgressParts, "dnsLimits" | "helloMs" | "interceptor" | "onRequest"> = {},
): Promise<World> {
  const names = await new TestNameServer().start(`${prefix}.53`);
  const node = new TestNode();
  const client = new NodeClient(await node.start());
  const tables = new CurrentTables();
  const egressLog = new EgressLog();
  const dialledPort = (port: number) => (port === 443 ? outside.tls : outside.http);
  const egress = startEgress({
    ...{ node: client, tables, egressLog, log, dialledPort, dnsLimits, helloMs, interceptor, onRequest },
  });
  const hosts: World["hosts"] = [`${prefix}.10`, `${prefix}.11`, `${prefix}.12`];
  let version = 0;
  const apply: World["apply"] = async ({
    first = denyAll,
    second = denyAll,
    withoutFirst = false,
    never,
    open,
    boundHosts,
  }) => {
    version += 1;
    const machine = (index: number, egressRules: EgressRules) => ({
      machine_id: `mch_${index}`,
      session_id: `ses_${index}`,
      generation: version,
      egress: egressRules,
      ...(index === 1 && { bound_hosts: boundHosts }),
    });
    const sent: GatewayTables = {
      version,
      slots: [
        {
          host_address: hosts[0],
          machine_address: `${prefix}.20`,
          ...(!withoutFirst && { machine: machine(1, first) }),
        },
        { host_address: hosts[1], machine_address: `${prefix}.21`, machine: machine(2, second) },
        { host_address: hosts[2], machine_address: `${prefix}.22` },
      ],
      routes: [],
      never: never ?? [`${prefix}.200/29`, "10.0.0.0/8"],
      open,
      resolvers: [names.address],
    };
    tables.replace(sent);
    await egress.settled();
  };
  await apply({});
  return {
    ...{ tables, names, node, egressLog, hosts, outside, apply },
    publicAddress: `${prefix}.80`,
    privateAddress: `${prefix}.201`,
    bound: egress.bound,
    entries: (atLeast = 1) => takeEntries(egressLog, atLeast),
    async close() {
      egress.close();
      names.close();
      client.close();
      await node.close();
    },
  };
}

async function takeEntries(egressLog: EgressLog, atLeast: number): Promise<EgressEntry[]> {
  const entries: EgressEntry[] = [];
  await until(() => {
    entries.push(...(egressLog.take()?.entries ?? []));
    return entries.reduce((sum, { count = 1 }) => sum + count, 0) >= atLeast;
  });
  return entries;
}

export const denyAll: EgressRules = { mode: "deny", allow: [] };
export const deny = (...allow: string[]): EgressRules => ({ mode: "deny", allow });
export const allowAll: EgressRules = { mode: "allow", allow: [] };

export const a = (name: string, data: string, ttl = 60): Answer => ({ type: "A", name, data, ttl });
export const alias = (name: string, data: string, ttl = 60): Answer => ({ type: "CNAME", name, data, ttl });
