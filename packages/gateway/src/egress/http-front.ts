/**
 * HTTP/1 for one slot: every request is read by a strict parser, judged by its Host and written anew, so that
 * gateway and server agree where it ends. A connection is for one host.
 */
import { Agent, createServer, type IncomingMessage, type Server } from "node:http";
import type { Duplex } from "node:stream";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { listenGuarded } from "@vivarium/http1/guarded-server";
import type { Header } from "@vivarium/http1/headers";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { Log } from "@vivarium/kit/log";
import { type Listener, listenAt } from "../tables/slots.ts";
import { dial } from "./dial.ts";
import { forwardRequest } from "./forward-request.ts";
import type { GuestFlow } from "./guest-flow.ts";
import { readHead } from "./http-request.ts";
import { closeWith, type Refusal, respondWith } from "./refuse-request.ts";
import type { FrontDeps } from "./tls-front.ts";

const OPTIONS = {
  insecureHTTPParser: false,
  maxHeaderSize: 16 * 1024,
  /** Checked by `readHead`: Node would answer before anything is logged. */
  requireHostHeader: false,
  keepAliveTimeout: 75_000,
  headersTimeout: 15_000,
  /** An upload may take any time. */
  requestTimeout: 0,
  connectionsCheckingInterval: 5_000,
  noDelay: true,
};
const IDLE_MS = 60 * 60 * 1000;

/** A guest's connection, with its connections to its one host. */
export interface HttpConnection {
  flow: GuestFlow;
  agent: Agent;
  log: Log;
}

/** A request that may be forwarded. */
export interface AdmittedRequest {
  connection: HttpConnection;
  request: IncomingMessage;
  path: string;
  headers: Header[];
}

export async function listenHttp(deps: FrontDeps, hostAddress: string): Promise<Listener> {
  const server = createServer(OPTIONS);
  server.timeout = IDLE_MS;
  // Bounded by their bytes: past a number of headers Node would drop the rest, and another request would be judged.
  server.maxHeadersCount = 0;
  serveConnections(deps, server, hostAddress);
  return await listenAt(server, hostAddress, GATEWAY_PORTS.http, { log: deps.log, name: "HTTP server" });
}

function serveConnections(deps: FrontDeps, server: Server, hostAddress: string): void {
  const connections = new WeakMap<Duplex, HttpConnection>();
  const { log } = deps;
  listenGuarded(server, log, {
    connection: (guest) => {
      guest.on("error", () => {});
      const flow = deps.flows.accept(guest, hostAddress, "http");
      if (!flow) return;
      const agent = new FlowAgent(deps, flow);
      connections.set(guest, { flow, agent, log });
      guest.once("close", () => agent.destroy());
    },
    request: (request, response, upgrade) => {
      const { socket } = request;
      const connection = connections.get(socket);
      if (!connection?.flow.isOpen && upgrade) return void socket.destroy();
      if (!connection || connection.flow.guest.destroyed) return;
      const { flow } = connection;
      const maySend = deps.flows.maySendAhead(flow) && pipelineOf(socket).add(response);
      if (!maySend) return flow.cut("too_many");
      // Requests behind a refused one are ignored: the connection is about to close.
      if (!flow.isOpen) return;
      const admitted = admit(connection, request);
      if ("refused" in admitted) respondWith(response, flow, admitted);
      else forwardRequest(admitted, response, upgrade);
    },
    upgradeBehind: (guest) => {
      const flow = connections.get(guest)?.flow;
      if (flow?.isOpen) flow.cut("malformed");
      else guest.destroy();
    },
    connect: (guest) => {
      const flow = connections.get(guest)?.flow;
      if (flow) closeWith(flow, { refused: "malformed", why: "CONNECT is not served" });
      else guest.destroy();
    },
    unreadable: (error, guest) => {
      const flow = connections.get(guest)?.flow;
      if (!flow || error.code === "ECONNRESET") return void guest.destroy();
      closeWith(flow, { refused: "malformed", why: "the request cannot be read" });
    },
  });
}

/** Judges each request anew, by the current tables. */
function admit(connection: HttpConnection, request: IncomingMessage): AdmittedRequest | Refusal {
  const head = readHead(request);
  if ("refused" in head) return head;
  const bound = connection.flow.admittedHost;
  if (bound !== undefined && bound !== head.host) {
    return { refused: "host_mismatch", why: `this connection is for ${bound}` };
  }
  if (!connection.flow.admits(head.host)) {
    const why = `${head.host} is not in the egress policy of this session`;
    return { refused: "name_not_allowed", why, status: 403 };
  }
  return { connection, request, path: head.path, headers: head.headers };
}

/** Dials the flow's host. The connections serve no other flow. */
class FlowAgent extends Agent {
  readonly #deps: FrontDeps;
  readonly #flow: GuestFlow;

  constructor(deps: FrontDeps, flow: GuestFlow) {
    super({ keepAlive: true, maxSockets: 1 });
    this.#deps = deps;
    this.#flow = flow;
  }

  override createConnection(
    _options: unknown,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    dial(this.#deps, this.#flow).then(
      (socket) => callback?.(null, socket),
      (error: Error) => callback?.(error, undefined as unknown as Duplex),
    );
  }
}
