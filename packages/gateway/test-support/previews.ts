/** Runs a gateway's previews on loopback for tests; each guest listens on its own address of 127.0.0.0/8. */
import { createHash, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type RequestListener, request, type Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { GatewayTables, PreviewRoute, WakeOutcome } from "@vivarium/contract/gateway";
import { randomId } from "@vivarium/kit/id";
import { createLog, type Log } from "@vivarium/kit/log";
import {
  type Previews,
  type PreviewsConfig,
  startPreviews,
  type TablesInForce,
} from "../src/previews/start.ts";
import { inTime } from "./in-time.ts";

/** Time limit for the end of a connection: longer than the 20 s that a request's head may take. */
const LONGEST_MS = 30_000;

export const mintToken = () => randomBytes(32).toString("base64url");
export const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** Tables in force that the test changes in place of a node. */
export class TestTables implements TablesInForce {
  #tables: GatewayTables = { version: 1, slots: [], routes: [], never: [], resolvers: ["127.0.0.1"] };
  readonly #listeners = new Set<() => void>();

  current(): GatewayTables {
    return this.#tables;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  change(next: Partial<GatewayTables>): void {
    this.#tables = { ...this.#tables, ...next, version: this.#tables.version + 1 };
    for (const listener of this.#listeners) listener();
  }

  addMachine(sessionId: string, address: string, machineId = `${sessionId}-1`): void {
    const machine = {
      machine_id: machineId,
      session_id: sessionId,
      generation: 1,
      egress: { mode: "allow" as const, allow: [] },
    };
    const others = this.#tables.slots.filter((slot) => slot.machine?.session_id !== sessionId);
    this.change({ slots: [...others, { host_address: "127.88.0.1", machine_address: address, machine }] });
  }

  putRoute(route: PreviewRoute): void {
    const others = this.#tables.routes.filter(
      (other) => other.session_id !== route.session_id || other.port !== route.port,
    );
    this.change({ routes: [...others, route] });
  }
}

export interface Gateway {
  tables: TestTables;
  previews: Previews;
  port: number;
  /** Ids of the sessions whose wake was asked for, in order. */
  wakes: string[];
  active: string[];
  /** Returns the outcome of a wake. Set by the test. */
  onWake: (sessionId: string) => Promise<WakeOutcome>;
}

export async function startGateway(
  config: Partial<PreviewsConfig> = {},
  log: Log = createLog("previews", "silent"),
): Promise<Gateway> {
  const gateway: Omit<Gateway, "previews" | "port"> = {
    tables: new TestTables(),
    wakes: [],
    active: [],
    onWake: async () => ({ result: "refused", status: 503, retry_after_s: 7 }),
  };
  const previews = await startPreviews({
    config: {
      listen: { host: "127.0.0.1", port: 0 },
      nodeDomain: "localhost",
      secure: false,
      ...config,
    },
    tables: gateway.tables,
    wake: (sessionId) => {
      gateway.wakes.push(sessionId);
      return gateway.onWake(sessionId);
    },
    log,
    onActive: (sessionId) => gateway.active.push(sessionId),
  });
  return Object.assign(gateway, { previews, port: Number(new URL(previews.url()).port) });
}

/** A server on a machine's address; `heads` are the request heads that it received. */
export interface Guest {
  server: Server;
  /** Open connections. */
  sockets: Set<Socket>;
  address: string;
  port: number;
  heads: string[];
}

let machines = 0;

export async function startGuest(
  onRequest: RequestListener,
  onUpgrade?: (message: IncomingMessage, socket: Socket, head: Buffer) => void,
): Promise<Guest> {
  machines++;
  const address = `127.77.${machines >> 8}.${(machines & 255) + 1}`;
  const heads: string[] = [];
  const note = (message: IncomingMessage) => {
    const headers = message.rawHeaders.map((text, i) => text + (i % 2 === 0 ? ": " : "\n")).join("");
    heads.push(`${message.method} ${message.url}\n${headers}`);
  };
  const server = createServer((message, response) => {
    note(message);
    onRequest(message, response);
  });
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  if (onUpgrade) {
    server.on("upgrade", (message, socket, head) => {
      note(message);
      socket.on("error", () => undefined);
      onUpgrade(message, socket as Socket, head);
    });
  }
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  return { server, sockets, address, port: (server.address() as AddressInfo).port, heads };
}

export async function stopGuest({ server, sockets }: Guest): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  for (const socket of sockets) socket.destroy();
  await closed;
}

export interface Exposed {
  route: PreviewRoute;
  token: string;
  host: string;
}

/** Exposes the guest's port as one of a new session. */
export function expose(
  gateway: Gateway,
  guest: Pick<Guest, "address" | "port">,
  change: Partial<PreviewRoute> = {},
): Exposed {
  const token = mintToken();
  const route: PreviewRoute = {
    session_id: randomId(),
    port: guest.port,
    version: 1,
    visibility: "token",
    token_sha256: sha256(token),
    cookie_key: randomBytes(32).toString("hex"),
    wake_on_http: true,
    state: "live",
    ...change,
  };
  if (route.visibility === "public") route.token_sha256 = undefined;
  if (route.state === "live") gateway.tables.addMachine(route.session_id, guest.address);
  gateway.tables.putRoute(route);
  return { route, token, host: `${route.port}-${route.session_id}.localhost:${gateway.port}` };
}

export interface Reply {
  status: number;
  headers: IncomingMessage["headers"];
  rawHeaders: string[];
  body: string;
}

export function get(
  gateway: Pick<Gateway, "port">,
  host: string,
  path = "/",
  options: { headers?: Record<string, string | string[]>; method?: string; body?: string | Buffer } = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const outgoing = request({
      host: "127.0.0.1",
      port: gateway.port,
      path,
      method: options.method ?? "GET",
      headers: { host, ...options.headers },
      maxHeaderSize: 128 << 10,
      agent: false,
    });
    outgoing.on("error", reject);
    outgoing.on("response", (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("error", reject);
      answer.on("end", () =>
        resolve({
          status: answer.statusCode ?? 0,
          headers: answer.headers,
          rawHeaders: answer.rawHeaders,
          body: Buffer.concat(chunks).toString(),
        }),
      );
    });
    outgoing.end(options.body);
  });
}

export const NAVIGATION = { "sec-fetch-mode": "navigate", "sec-fetch-site": "none" };

/** Sends raw bytes and resolves to everything received until the other side closed. */
export async function sendRaw(port: number, bytes: string | Buffer): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.on("data", (chunk) => chunks.push(chunk)).on("error", () => undefined);
  socket.write(bytes);
  await inTime(closed, "the end of a connection", LONGEST_MS);
  return Buffer.concat(chunks).toString("latin1");
}

/** Sends a WebSocket handshake. Resolves to the socket, the answer's head, and the bytes behind the head. */
export async function openUpgrade(
  gateway: Pick<Gateway, "port">,
  host: string,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ socket: Socket; head: string; rest: Buffer }> {
  const socket = connect(gateway.port, "127.0.0.1");
  socket.on("error", () => undefined);
  const lines = Object.entries({
    host,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
  const bytes: Buffer[] = [];
  return await new Promise((resolve) => {
    const look = () => {
      const all = Buffer.concat(bytes);
      const end = all.indexOf("\r\n\r\n");
      if (end === -1 && !socket.closed) return;
      socket.off("data", take);
      resolve({ socket, head: all.subarray(0, end).toString(), rest: all.subarray(end + 4) });
    };
    const take = (chunk: Buffer) => {
      bytes.push(chunk);
      look();
    };
    socket.on("data", take);
    socket.once("close", look);
  });
}

export async function closedOf(socket: Socket): Promise<void> {
  if (socket.closed) return;
  socket.resume();
  await inTime(
    new Promise((resolve) => socket.once("close", resolve)),
    "the end of a connection",
    LONGEST_MS,
  );
}
