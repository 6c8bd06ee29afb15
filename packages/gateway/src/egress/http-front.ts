/**
 * Serves a guest's HTTP/1 at one slot. Each request is parsed strictly, checked by its Host and written anew, so that
 * gateway and server agree where it ends. A connection is for one host.
 */
import { Agent, createServer, type IncomingMessage, type Server } from "node:http";
import type { Duplex } from "node:stream";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { listenGuarded, UNTRUSTED_CLIENT_OPTIONS } from "@vivarium/http1/guarded-server";
import type { Header } from "@vivarium/http1/headers";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { Log } from "@vivarium/kit/log";
import { type Listener, listenAt } from "../tables/slots.ts";
import { type DialDeps, dial } from "./dial.ts";
import { forwardRequest } from "./forward-request.ts";
import type { GuestFlow } from "./guest-flow.ts";
import type { GuestFlows } from "./guest-flows.ts";
import { readHead } from "./http-request.ts";
import { closeWith, type Refusal, respondWith } from "./refuse-request.ts";

const OPTIONS = { ...UNTRUSTED_CLIENT_OPTIONS, noDelay: true };
const IDLE_MS = 60 * 60 * 1000;

type HttpDeps = DialDeps & { flows: GuestFlows; log: Log };

/** A guest's connection, with the agent that keeps its connection to the server. */
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

export async function listenHttp(deps: HttpDeps, hostAddress: string): Promise<Listener> {
  const server = createServer(OPTIONS);
  server.timeout = IDLE_MS;
  // No limit on their number, only on their bytes: Node would drop the rest, and a different request would be checked.
  server.maxHeadersCount = 0;
  serveConnections(deps, server, hostAddress);
  return await listenAt(server, hostAddress, GATEWAY_PORTS.http, { log: deps.log, name: "HTTP server" });
}

function serveConnections(deps: HttpDeps, server: Server, hostAddress: string): void {
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
      // Pipelined requests behind a refused request are ignored: the connection is about to close.
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

/** Checks a request against the current tables and the connection's host. */
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

/** Connects to the flow's host. Its connection is used by this flow only. */
class FlowAgent extends Agent {
  readonly #deps: HttpDeps;
  readonly #flow: GuestFlow;

  constructor(deps: HttpDeps, flow: GuestFlow) {
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
