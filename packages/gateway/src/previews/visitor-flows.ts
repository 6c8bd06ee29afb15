/**
 * The requests and WebSockets in flight, each with the version of the route that admitted it. A flow is cut when that
 * version or its machine goes.
 */
import type { Socket } from "node:net";
import type { GatewayTables, PreviewRoute } from "@vivarium/contract/gateway";
import { backendOf, routeKey, routeOf } from "./lookup.ts";

/** Requests with the guest, and those that wait for a wake or for the request limit. */
const MAX_FLOWS_OF_A_ROUTE = 256 + 2_000;
const LOOK_EVERY_MS = 1_000;
/** A guest under emulation can be slow to accept a connection. */
const CONNECT_LIMIT_MS = 10_000;
/** Long polling lets clients wait for minutes. */
const ANSWER_LIMIT_MS = 10 * 60_000;
/** The longest pause of a side that has to send or to read a body. Silence alone is allowed. */
const UPLOAD_LIMIT_MS = 60_000;
const READING_LIMIT_MS = 5 * 60_000;

export type Phase = "waiting" | "connecting" | "asking" | "passing";

export class VisitorFlow {
  readonly route: PreviewRoute;
  readonly visitor: Socket;
  /** Whether bytes of the request are missing. */
  readonly owesBody: () => boolean;
  machineId?: string;
  phase: Phase = "waiting";
  guest?: { destroy(): void };
  guestSocket?: Socket;
  /** Called instead of cutting off when the guest was too slow to begin an answer. */
  onSlowGuest: () => void = () => undefined;
  /** Called instead of cutting off when the machine went before it began to answer. */
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

  /** The session was paused, or has another machine by now. False: an answer has begun and cannot be continued. */
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

  /** Ends a flow that makes no progress. Silence is allowed while neither side has to send or to read. */
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
    }, LOOK_EVERY_MS).unref();
  }

  /** Undefined when the route has more visitors than it may. */
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

  /** Cuts the flows that these tables do not allow. */
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

/** `moved`: the visitor is still admitted, but the machine is gone or another one. */
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

/** Bytes received and bytes that left the buffer: buffered bytes are not progress. */
function moved(socket: Socket | undefined): number {
  return socket === undefined ? 0 : socket.bytesRead + socket.bytesWritten - socket.writableLength;
}
