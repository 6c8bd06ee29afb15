/**
 * Terminates the TLS of a guest's connection to a bound origin, with a certificate of the session's own authority, and
 * serves the requests on it. One connection of a guest is for one origin.
 */
import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createServer, type SecureContext, type TLSSocket } from "node:tls";
import type { ConnectionEntry } from "@vivarium/contract/gateway";
import { guarded } from "@vivarium/http1/guard";
import type { Log } from "@vivarium/kit/log";
import { normaliseName } from "../policy/names.ts";
import type { BoundConnections } from "./bound-connections.ts";
import { serveRequest } from "./exchange.ts";
import { createHttp1 } from "./guest-http1.ts";
import { serveHttp2 } from "./guest-http2.ts";
import type { GuestRequest } from "./guest-request.ts";
import type { ActiveConnection, OpenConnection, Origin } from "./origin.ts";
import { secure, systemRoots, type Upstream } from "./upstream.ts";
import { Http1Upstream } from "./upstream-http1.ts";
import { Http2Upstream } from "./upstream-http2.ts";

export interface Limits {
  /** Time of a TLS handshake with the guest, in milliseconds: one on an emulated and busy host takes many seconds. */
  guestHandshakeMs: number;
  /** Time of a TLS handshake with the origin. */
  handshakeMs: number;
  /** Time in which a guest sends the head of a request. */
  headMs: number;
  /** Time from a request to the head of its answer: some origins compute for minutes. */
  answerMs: number;
  /** Longest silence on a guest's connection. */
  idleMs: number;
  /** Time in which a guest with HTTP/2 takes the answer to a refused request. */
  refusalMs: number;
  /** TCP connections to one origin for one session: each stream of a guest may need its own. */
  dialled: number;
}

const LIMITS: Limits = {
  ...{ guestHandshakeMs: 30_000, handshakeMs: 10_000, headMs: 15_000 },
  ...{ answerMs: 15 * 60_000, idleMs: 60 * 60_000 },
  ...{ refusalMs: 10_000, dialled: 256 },
};

/** Idle time after which TCP keep-alive probes begin. */
const DEAD_PEER_MS = 60_000;

/** Protocols that the gateway speaks. */
const HTTP2 = "h2";
const HTTP1 = "http/1.1";

/** A connection of a guest, whose ClientHello names a bound origin. */
export interface BoundFlow {
  guest: Socket;
  machineId: string;
  sessionId: string;
  /** Whether the session's egress policy allows the origin now. */
  isAllowed: () => boolean;
  /** Opens a TCP connection to a checked address of the origin. */
  dial: () => Promise<Socket>;
}

export interface InterceptorDeps {
  bound: BoundConnections;
  log: Log;
  /** Called for each request once it is over, with the machine that made it, and for each answer that carried a credential. */
  report: (entry: ConnectionEntry & { machine_id: string }) => void;
  /** Certificates of authorities that origins are verified with. Default: the host's. */
  roots?: SecureContext;
  limits?: Partial<Limits>;
}

export class Interceptor {
  readonly #deps: InterceptorDeps;
  readonly #limits: Limits;
  readonly #http1: Server;
  readonly #connections = new WeakMap<Duplex, GuestConnection>();
  #roots: SecureContext | undefined;

  constructor(deps: InterceptorDeps) {
    this.#deps = deps;
    this.#limits = { ...LIMITS, ...deps.limits };
    this.#roots = deps.roots;
    this.#http1 = createHttp1({ log: deps.log, ...this.#limits }, (socket, request) => {
      const connection = this.#connections.get(socket);
      if (connection) void connection.serve(request);
      else socket.destroy();
    });
  }

  /** Takes over the guest's socket, whose first bytes are `received`. Rejects when no certificate can be made. */
  async serve(flow: BoundFlow, origin: Origin, received: Buffer): Promise<void> {
    const { bound, log, report } = this.#deps;
    const secureContext = await bound.certificateFor(flow.sessionId, origin.host);
    if (flow.guest.destroyed) return;
    this.#roots ??= systemRoots();
    const connection = new GuestConnection({
      ...{ flow, origin, bound, log, limits: this.#limits, roots: this.#roots },
      report: (entry) =>
        report({
          ...entry,
          ...{ machine_id: flow.machineId, session_id: flow.sessionId },
          ...{ connection: origin.name, host: origin.host },
        }),
    });
    flow.guest.unshift(received);
    // A guest that ends its side has left: no request is whole without its answer.
    flow.guest.allowHalfOpen = false;
    flow.guest.setNoDelay(true);
    flow.guest.setKeepAlive(true, DEAD_PEER_MS);
    this.#whenSecure(flow.guest, secureContext, (socket) => {
      if (normaliseName(String(socket.servername)) !== origin.host) return void socket.destroy();
      connection.socket = socket;
      if (socket.alpnProtocol === HTTP2) {
        serveHttp2(
          socket,
          { log: this.#deps.log, ...this.#limits, refused: origin.share.refused },
          (request) => void connection.serve(request),
        );
        return;
      }
      this.#connections.set(socket, connection);
      this.#http1.emit("connection", socket);
    });
  }

  /** A server for this connection alone: with a shared one the secure socket could not be matched to the guest's. */
  #whenSecure(guest: Socket, context: SecureContext, then: (socket: TLSSocket) => void): void {
    const { log } = this.#deps;
    const server = createServer({
      SNICallback: (_name, choose) => choose(null, context),
      ALPNProtocols: [HTTP2, HTTP1],
      handshakeTimeout: this.#limits.guestHandshakeMs,
    });
    const onSecure = (socket: TLSSocket) => {
      socket.on("error", () => socket.destroy());
      then(socket);
    };
    server.once(
      "secureConnection",
      guarded(log, onSecure, (socket) => socket.destroy()),
    );
    server.on("tlsClientError", () => guest.destroy());
    server.emit("connection", guest);
  }
}

interface GuestConnectionDeps {
  flow: BoundFlow;
  origin: Origin;
  bound: BoundConnections;
  log: Log;
  limits: Limits;
  roots: SecureContext;
  report: (entry: Omit<ConnectionEntry, "session_id" | "connection" | "host">) => void;
}

/** A guest's connection to an origin, with the connections to the origin that serve it alone. */
class GuestConnection implements OpenConnection {
  /** TLS with the guest, once its handshake is done. */
  socket: TLSSocket | undefined;
  readonly #deps: GuestConnectionDeps;
  /** TCP connections to the origin. */
  readonly #dialled = new Set<Socket>();
  readonly #upstreams = new Set<Upstream>();
  /** The connection that new requests use. `upstream` is set once it is open. */
  #current: { opening: Promise<Upstream>; upstream?: Upstream } | undefined;

  constructor(deps: GuestConnectionDeps) {
    this.#deps = deps;
    const remove = deps.origin.add(this);
    deps.flow.guest.once("close", () => {
      remove();
      this.#closeUpstreams();
    });
  }

  serve(request: GuestRequest): Promise<void> {
    const { flow, origin, bound, log, limits, report } = this.#deps;
    return serveRequest(
      {
        ...{ origin, log, report, answerMs: limits.answerMs },
        isAllowed: flow.isAllowed,
        isLeased: () => bound.isLeased,
        connect: (active) => this.#connect(active),
        end: () => this.end(),
      },
      request,
    );
  }

  /** Ends the connection behind what was written to the guest already. */
  end(): void {
    this.#closeUpstreams();
    this.socket?.destroy();
  }

  /** Resets the sockets: what waits in their buffers is not sent any more. */
  async destroy(): Promise<void> {
    const { guest } = this.#deps.flow;
    const sockets = [...this.#dialled, guest];
    this.#closeUpstreams();
    guest.resetAndDestroy();
    await Promise.all(sockets.map(closed));
  }

  #closeUpstreams(): void {
    for (const socket of this.#dialled) socket.resetAndDestroy();
    for (const upstream of this.#upstreams) upstream.destroy();
    this.#upstreams.clear();
    this.#current = undefined;
  }

  /** Requests share the connection to the origin. One that failed or ended is replaced. */
  #connect(active: ActiveConnection): Promise<Upstream> {
    const known = this.#current;
    if (known && (known.upstream === undefined || known.upstream.isUsable)) return known.opening;
    if (known?.upstream) this.#upstreams.delete(known.upstream);
    const current: NonNullable<typeof known> = { opening: this.#open(active) };
    this.#current = current;
    current.opening.then(
      (upstream) => {
        current.upstream = upstream;
      },
      () => {
        if (this.#current === current) this.#current = undefined;
      },
    );
    return current.opening;
  }

  /** A guest with HTTP/1.1 gets HTTP/1.1 to the origin; one with HTTP/2 gets what the origin speaks. */
  async #open({ credential }: ActiveConnection): Promise<Upstream> {
    const isHttp2 = this.socket?.alpnProtocol === HTTP2;
    const first = await this.#dial(isHttp2 ? [HTTP2, HTTP1] : [HTTP1]);
    const upstream =
      first.alpnProtocol === HTTP2
        ? new Http2Upstream(first, { host: this.#deps.origin.host, secretHeader: credential.headerName })
        : new Http1Upstream(first, () => this.#dial([HTTP1]));
    this.#upstreams.add(upstream);
    return upstream;
  }

  async #dial(protocols: string[]): Promise<TLSSocket> {
    const { flow, origin, bound, limits, roots } = this.#deps;
    const giveBack = origin.takeDial(limits.dialled);
    if (!giveBack) throw new Error("the session has too many connections to this origin");
    const raw = await flow.dial().catch((error: unknown) => {
      giveBack();
      throw error;
    });
    this.#dialled.add(raw);
    raw.once("close", () => {
      this.#dialled.delete(raw);
      giveBack();
    });
    if (flow.guest.destroyed) raw.destroy();
    const socket = await secure(raw, { host: origin.host, roots, protocols, withinMs: limits.handshakeMs });
    if (bound.isLeased) return socket;
    raw.destroy();
    throw new Error("control cannot be reached");
  }
}

function closed(socket: Socket): Promise<void> {
  return socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once("close", () => resolve()));
}
