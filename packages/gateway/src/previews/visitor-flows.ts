/**
 * Tracks the requests and WebSockets in flight (flows), each with the version of the route that admitted it. A flow is
 * cut when tables no longer have that version, when the machine that answers is gone, or when it makes no progress.
 */
import type { Socket } from "node:net";
import type { GatewayTables, PreviewRoute } from "@vivarium/contract/gateway";
import { backendOf, routeKey, routeOf } from "./lookup.ts";

/** Flows per route: 256 at the guest (the request limit), the rest waiting for a wake or for that limit. */
const MAX_FLOWS_OF_A_ROUTE = 256 + 2_000;
const CHECK_EVERY_MS = 1_000;
/** Time limit for a guest to accept a connection; long, since a guest under emulation can be slow. */
const CONNECT_LIMIT_MS = 10_000;
/** Time limit for a guest to begin an answer; long, since long polling lets clients wait for minutes. */
const ANSWER_LIMIT_MS = 10 * 60_000;
/** The longest pause of a visitor that has to send a body, and of a side that has bytes to read. */
const UPLOAD_LIMIT_MS = 60_000;
const READING_LIMIT_MS = 5 * 60_000;

export type Phase = "waiting" | "connecting" | "asking" | "passing";

export class VisitorFlow {
  readonly route: PreviewRoute;
  readonly visitor: Socket;
  /** Whether the visitor has not sent the whole body yet. */
  readonly owesBody: () => boolean;
  machineId?: string;
  phase: Phase = "waiting";
  guest?: { destroy(): void };
  guestSocket?: Socket;
  /** Called when the guest was too slow to accept the connection or to begin an answer. */
  onSlowGuest: () => void = () => undefined;
  /** Called when the machine was gone before it began to answer. */
  onMachineGone: () => void = () => undefined;
  isCut = false;
  #progress = -1;
  #since = Date.now();

  constructor(route: PreviewRoute, visitor: Socket, owesBody: () => boolean) {
    this.route = route;
    this.visitor = visitor;
    this.owesBody = owesBody;
  }

  enter(phase: Phase): void {
    this.phase = phase;
    this.#since = Date.now();
  }

  cut(): void {
    this.isCut = true;
    this.visitor.destroy();
    this.guest?.destroy();
    this.guestSocket?.destroy();
  }

  /** Gives up a machine that is gone. Returns false when an answer has begun: another machine cannot continue it. */
  leaveMachine(): boolean {
    if (this.phase === "passing") return false;
    this.enter("waiting");
    this.machineId = undefined;
    this.guest?.destroy();
    this.guestSocket?.destroy();
    this.guest = undefined;
    this.guestSocket = undefined;
    this.onMachineGone();
    return true;
  }

  /** Whether bytes moved since the last call. */
  hasMoved(): boolean {
    const progress = moved(this.visitor) + moved(this.guestSocket);
    const isMoving = progress !== this.#progress;
    if (isMoving) this.#since = Date.now();
    this.#progress = progress;
    return isMoving;
  }

  /** Ends a flow that makes no progress. Silence is allowed while no side has a body to send or bytes to read. */
  enforceLimits(now = Date.now()): void {
    const still = now - this.#since;
    if (this.phase === "waiting") return;
    const isStuck = this.visitor.writableNeedDrain || this.guestSocket?.writableNeedDrain === true;
    if (this.phase === "connecting" && still > CONNECT_LIMIT_MS) this.onSlowGuest();
    else if (isStuck && still > READING_LIMIT_MS) this.cut();
    else if (!isStuck && this.owesBody() && still > UPLOAD_LIMIT_MS) this.cut();
    else if (this.phase === "asking" && still > ANSWER_LIMIT_MS) this.onSlowGuest();
  }
}

export class VisitorFlows {
  readonly #flows = new Set<VisitorFlow>();
  readonly #perRoute = new Map<string, number>();
  readonly #closing = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;

  constructor(onActive: (sessionId: string) => void) {
    this.#timer = setInterval(() => {
      for (const flow of this.#flows) {
        if (flow.hasMoved() && flow.phase !== "waiting") onActive(flow.route.session_id);
        flow.enforceLimits();
      }
    }, CHECK_EVERY_MS).unref();
  }

  /** Returns undefined when the route has too many flows. */
  open(route: PreviewRoute, visitor: Socket, owesBody: () => boolean): VisitorFlow | undefined {
    const key = routeKey(route.session_id, route.port);
    const open = this.#perRoute.get(key) ?? 0;
    if (open >= MAX_FLOWS_OF_A_ROUTE) return undefined;
    this.#perRoute.set(key, open + 1);
    const flow = new VisitorFlow(route, visitor, owesBody);
    this.#flows.add(flow);
    return flow;
  }

  done(flow: VisitorFlow): void {
    if (!this.#flows.delete(flow)) return;
    const key = routeKey(flow.route.session_id, flow.route.port);
    const open = (this.#perRoute.get(key) ?? 1) - 1;
    if (open === 0) this.#perRoute.delete(key);
    else this.#perRoute.set(key, open);
  }

  /** Cuts the flows that these tables do not allow, or makes them look for another machine. */
  enforce(tables: GatewayTables): void {
    for (const flow of this.#flows) {
      const standing = standingOf(tables, flow);
      if (standing === "over" || (standing === "moved" && !flow.leaveMachine())) this.#cut(flow);
    }
  }

  cutAll(): void {
    clearInterval(this.#timer);
    for (const flow of this.#flows) this.#cut(flow);
  }

  async settled(): Promise<void> {
    while (this.#closing.size > 0) await Promise.all(this.#closing);
  }

  #cut(flow: VisitorFlow): void {
    if (!flow.visitor.closed) {
      const closed = new Promise<void>((resolve) => flow.visitor.once("close", () => resolve()));
      this.#closing.add(closed);
      void closed.then(() => this.#closing.delete(closed));
    }
    flow.cut();
  }
}

/** `moved`: the visitor is still admitted, but the flow's machine is no longer the session's. */
function standingOf(
  tables: GatewayTables,
  { route: { session_id: sessionId, port, version }, machineId }: VisitorFlow,
): "good" | "moved" | "over" {
  const route = routeOf(tables, { sessionId, port });
  if (route?.version !== version) return "over";
  if (machineId === undefined) return "good";
  const isThere = route.state === "live" && backendOf(tables, sessionId)?.machineId === machineId;
  return isThere ? "good" : "moved";
}

/** Bytes received plus bytes sent. Bytes that are still buffered are not progress. */
function moved(socket: Socket | undefined): number {
  return socket === undefined ? 0 : socket.bytesRead + socket.bytesWritten - socket.writableLength;
}
