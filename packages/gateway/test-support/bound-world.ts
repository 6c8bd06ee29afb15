/**
 * Runs a gateway with a bound origin on loopback: the origin is a real TLS server with a certificate of a test authority, the
 * guest a real TLS client that trusts the session's own authority.
 */
import { once } from "node:events";
import type { IncomingMessage, OutgoingHttpHeaders, RequestListener, ServerResponse } from "node:http";
import {
  type ClientHttp2Session,
  connect as connectHttp2,
  createSecureServer,
  type Settings,
} from "node:http2";
import { createServer as createHttps, request as httpsRequest } from "node:https";
import type { AddressInfo, Server, Socket } from "node:net";
import { connect as connectTls, createSecureContext, type TLSSocket } from "node:tls";
import {
  type BoundConnection,
  type ConnectionEntry,
  GATEWAY_PORTS,
  type SessionConnections,
} from "@vivarium/contract/gateway";
import { type KeyPair, makeAuthority, signServer } from "@vivarium/kit/certificates";
import { createLog, type Log } from "@vivarium/kit/log";
import type { Limits } from "../src/connections/interceptor.ts";
import { inTime, until } from "./in-time.ts";
import { a, deny, startWorld, type World } from "./world.ts";

const DAY_MS = 24 * 3_600_000;
export const HOST = "api.example";
export const SECRET = 'sk-live/Zx9+quite"long\\secret=';

/** A request as the origin received it. */
export interface Received {
  method: string;
  url: string;
  httpVersion: string;
  rawHeaders: string[];
  body: string;
}

/** The values of a header, whatever its case. */
export function valuesIn({ rawHeaders }: Pick<Received, "rawHeaders">, name: string): string[] {
  return rawHeaders.filter(
    (_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name.toLowerCase(),
  );
}

/** An origin. `answer` may be replaced by a test; without it the origin answers `ok`. */
export class TestOrigin {
  readonly received: Received[] = [];
  readonly sockets = new Set<Socket>();
  connections = 0;
  readonly server: Server;
  answer: RequestListener = (_request, response) => void response.end("ok");
  /** Set to false when the answer reads the body itself. */
  readsBody = true;

  constructor({ certificatePem, keyPem }: KeyPair, protocols: "http1" | "both") {
    const pair = { cert: certificatePem, key: keyPem };
    const listener = (request: IncomingMessage, response: ServerResponse) =>
      void this.#serve(request, response);
    this.server =
      protocols === "http1"
        ? createHttps({ ...pair, ALPNProtocols: ["http/1.1"], shouldUpgradeCallback: () => false }, listener)
        : createSecureServer({ ...pair, allowHTTP1: true }, listener as never);
    this.server.on("connection", (socket: Socket) => {
      this.connections += 1;
      this.sockets.add(socket);
      socket.on("error", () => {}).once("close", () => this.sockets.delete(socket));
    });
    // On a slow host a connection may be unused for longer than the usual five seconds.
    Object.assign(this.server, { keepAliveTimeout: 0 });
    this.server.on("sessionError", () => {}).on("tlsClientError", () => {});
  }

  async start(address: string, port = 0): Promise<number> {
    this.server.listen(port, address);
    await once(this.server, "listening");
    return (this.server.address() as AddressInfo).port;
  }

  /** Everything that this origin received, as one text. */
  text(): string {
    return JSON.stringify(this.received);
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "", url = "", httpVersion, rawHeaders } = request;
    const received: Received = { method, url, httpVersion, rawHeaders: [...rawHeaders], body: "" };
    this.received.push(received);
    request.on("error", () => {}).on("data", (chunk: Buffer) => (received.body += chunk.toString("latin1")));
    response.on("error", () => {});
    if (this.readsBody && !request.complete) await once(request, "end").catch(() => {});
    this.answer(request, response);
  }
}

export interface Reply {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  trailers: Record<string, string | undefined>;
  body: string;
  /** Whether the answer ended as it should. */
  isWhole: boolean;
}

export interface BoundWorld extends World {
  origin: TestOrigin;
  roots: KeyPair;
  ca: KeyPair;
  /** Sets the Connections of the first machine's session: those given, else one with these changes. */
  bind(change?: Partial<BoundConnection>, more?: Partial<SessionConnections>): Promise<void>;
  /** Opens TLS as the guest of the first machine does. */
  open(options?: { servername?: string; alpn?: string[]; host?: string; ca?: string }): Promise<TLSSocket>;
  ask(path?: string, options?: AskOptions): Promise<Reply>;
  /** Sends raw bytes over TLS and returns the raw answer. */
  send(bytes: string | Buffer, host?: string): Promise<string>;
  session2(): Promise<ClientHttp2Session>;
  /** A session to another bound origin, or with settings of its own. */
  session2of(servername: string, settings?: Settings): Promise<ClientHttp2Session>;
  /** Reports of the gateway so far. */
  reports(): ConnectionEntry[];
}

export interface AskOptions {
  method?: string;
  headers?: OutgoingHttpHeaders | string[];
  body?: string | Buffer;
  servername?: string;
  /** Called at each part of the answer's body. */
  onBody?: () => void;
}

export const connection = (change: Partial<BoundConnection> = {}): BoundConnection => ({
  name: "api",
  host: HOST,
  methods: ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"],
  paths: ["/*"],
  header: { name: "Authorization", value: `Bearer ${SECRET}` },
  generation: 1,
  expires_at: new Date(Date.now() + DAY_MS).toISOString(),
  ...change,
});

export async function startBoundWorld(
  prefix: string,
  {
    protocols = "both",
    limits,
    moreRoots = [],
    log = createLog("gateway-test", "silent"),
  }: { protocols?: "http1" | "both"; limits?: Partial<Limits>; moreRoots?: string[]; log?: Log } = {},
): Promise<BoundWorld> {
  const roots = await makeAuthority({ name: "test roots", notAfter: new Date(Date.now() + 2 * DAY_MS) });
  const ca = await makeAuthority({ name: "session authority", notAfter: new Date(Date.now() + 2 * DAY_MS) });
  const origin = new TestOrigin(await signServer(roots, { host: HOST, lifeMs: DAY_MS }), protocols);
  const port = await origin.start(`${prefix}.80`);
  const interceptor = { roots: createSecureContext({ ca: [roots.certificatePem, ...moreRoots] }), limits };
  const reports: ConnectionEntry[] = [];
  const onRequest = (entry: ConnectionEntry) => void reports.push(entry);
  const world = await startWorld(prefix, { http: port, tls: port }, log, { interceptor, onRequest });
  world.names.script = (name) => [a(name, `${prefix}.80`)];
  await world.apply({ first: deny(HOST, "other.example", "x.example") });
  let version = 0;
  const opened = new Set<Socket>();
  const bound: BoundWorld = {
    ...world,
    ...{ origin, roots, ca },
    async bind(change = {}, more = {}) {
      version += 1;
      const authority = { certificate_pem: ca.certificatePem, key_pem: ca.keyPem };
      world.bound.renewLease();
      await world.bound.set({
        ...{ session_id: "ses_1", version, ca: authority, connections: [connection(change)], tombstones: [] },
        ...more,
      });
    },
    async open({ servername = HOST, alpn = ["http/1.1"], host = world.hosts[0], ca: trusted } = {}) {
      const socket = connectTls({
        ...{ host, port: GATEWAY_PORTS.tls, servername, ca: trusted ?? ca.certificatePem },
        ALPNProtocols: alpn,
      });
      opened.add(socket);
      socket.once("close", () => opened.delete(socket));
      await inTime(once(socket, "secureConnect"), "a TLS handshake");
      socket.on("error", () => {});
      return socket;
    },
    async ask(path = "/v1/items", options = {}) {
      const socket = await bound.open(
        options.servername === undefined ? {} : { servername: options.servername },
      );
      return await inTime(askOver(socket, path, options), "an answer").finally(() => socket.destroy());
    },
    async send(bytes, host) {
      const socket = await bound.open(host === undefined ? {} : { host });
      const chunks: Buffer[] = [];
      socket.on("data", (chunk) => chunks.push(chunk));
      socket.write(bytes);
      if (!socket.closed) await inTime(once(socket, "close"), "the end of a connection");
      return Buffer.concat(chunks).toString("latin1");
    },
    session2: () => bound.session2of(HOST),
    async session2of(servername, settings) {
      const socket = await bound.open({ servername, alpn: ["h2"] });
      const session = connectHttp2(`https://${servername}`, {
        createConnection: () => socket,
        ...(settings && { settings }),
      });
      session.on("error", () => {});
      return session;
    },
    reports: () => reports,
    async close() {
      for (const socket of opened) socket.destroy();
      origin.close();
      await world.close();
    },
  };
  return bound;
}

/** Sends one request with HTTP/1.1. */
export function askOver(socket: TLSSocket, path: string, options: AskOptions = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { method = "GET", headers = {}, body, onBody = () => {} } = options;
    const list = Array.isArray(headers) ? headers : { Host: HOST, ...headers };
    const call = httpsRequest({ createConnection: () => socket, method, path, headers: list });
    call.on("error", reject).on("response", (answer) => {
      const chunks: Buffer[] = [];
      const done = () =>
        resolve({
          status: answer.statusCode ?? 0,
          headers: answer.headers,
          trailers: answer.trailers,
          body: Buffer.concat(chunks).toString("latin1"),
          isWhole: answer.complete,
        });
      answer.on("data", (chunk: Buffer) => chunks.push(chunk)).on("data", onBody);
      answer.on("error", () => {}).once("close", done);
    });
    call.end(body);
  });
}

/** Sends one request with HTTP/2. */
export async function ask2(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body?: string | Buffer,
  onBody: AskOptions["onBody"] = () => {},
): Promise<Reply & { rstCode: number }> {
  const fields = { ":path": "/v1/items", ":authority": HOST, ...headers };
  const stream = session.request(fields, { endStream: body === undefined });
  let reply: Pick<Reply, "status" | "headers"> = { status: 0, headers: {} };
  let trailers: Reply["trailers"] = {};
  let isWhole = false;
  const chunks: Buffer[] = [];
  stream.on("error", () => {}).on("data", (chunk) => chunks.push(chunk));
  stream.on("data", onBody);
  stream.once("response", (answer) => {
    reply = { status: Number(answer[":status"]), headers: answer };
  });
  stream.once("trailers", (fields) => {
    trailers = fields as Reply["trailers"];
  });
  stream.once("end", () => {
    isWhole = true;
  });
  if (body !== undefined) stream.end(body);
  await inTime(new Promise((resolve) => stream.once("close", resolve)), "the end of a stream");
  const rstCode = stream.rstCode ?? 0;
  return {
    ...reply,
    ...{ trailers, rstCode, isWhole: isWhole && rstCode === 0 },
    body: Buffer.concat(chunks).toString("latin1"),
  };
}

/** Waits until the gateway has reported as often, and returns the reports. */
export async function reportsOf(world: BoundWorld, count: number): Promise<ConnectionEntry[]> {
  await until(() => world.reports().length >= count);
  return world.reports();
}
