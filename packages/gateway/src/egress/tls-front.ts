/**
 * Serves a guest's TLS at one slot. Connections are admitted by their server name and forwarded unchanged, except those to
 * origins that a Connection of the session binds: these are intercepted.
 */
import { createServer, type Socket } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { guarded } from "@vivarium/http1/guard";
import type { Log } from "@vivarium/kit/log";
import type { BoundConnections } from "../connections/bound-connections.ts";
import type { Interceptor } from "../connections/interceptor.ts";
import type { Origin } from "../connections/origin.ts";
import { type Listener, listenAt } from "../tables/slots.ts";
import { type HelloReason, readHello } from "./client-hello.ts";
import { type DialDeps, DialRefused, dial } from "./dial.ts";
import type { GuestFlow } from "./guest-flow.ts";
import type { GuestFlows } from "./guest-flows.ts";
import { splice } from "./splice.ts";

/** A program on an emulated and busy host reads its certificates after it has connected, which takes it many seconds. */
const HELLO_MS = 30_000;

export type FrontDeps = DialDeps & {
  flows: GuestFlows;
  bound: BoundConnections;
  interceptor: Interceptor;
  /** Time in milliseconds in which a guest names its server. */
  helloMs?: number | undefined;
  log: Log;
};

export async function listenTls(deps: FrontDeps, hostAddress: string): Promise<Listener> {
  const onConnection = (guest: Socket) => {
    guest.on("error", () => {});
    const flow = deps.flows.accept(guest, hostAddress, "tls");
    if (!flow) return;
    serve(deps, flow).catch((error: unknown) => {
      if (!(error instanceof DialRefused)) deps.log.error({ err: error }, "a TLS flow broke");
      flow.cut(error instanceof DialRefused ? error.reason : "not_reachable");
    });
  };
  const serveGuarded = guarded(deps.log, onConnection, (guest) => guest.destroy());
  const server = createServer({ allowHalfOpen: true }, serveGuarded);
  return await listenAt(server, hostAddress, GATEWAY_PORTS.tls, { log: deps.log, name: "TLS server" });
}

async function serve(deps: FrontDeps, flow: GuestFlow): Promise<void> {
  const hello = await readName(deps, flow.guest);
  if ("reason" in hello) return flow.cut(hello.reason);
  const isAdmitted = flow.admits(hello.name);
  const origin = deps.bound.find(flow.sessionId, hello.name);
  if (origin) return await intercept(deps, flow, origin, hello.received);
  if (!isAdmitted) return flow.cut("name_not_allowed");
  // The gateway has restarted and does not have the session's Connections yet.
  if (flow.isBoundTo(hello.name)) return flow.cut("not_reachable");
  // Before the first wait: the host may be bound meanwhile.
  flow.passesUnread = true;
  const upstream = await dial(deps, flow);
  upstream.write(hello.received);
  splice(flow.guest, upstream);
}

async function intercept(deps: FrontDeps, flow: GuestFlow, origin: Origin, received: Buffer): Promise<void> {
  const { guest, machineId, sessionId } = flow;
  const isAllowed = () => flow.isOpen && flow.admittedHost === origin.host;
  await deps.interceptor.serve(
    { guest, machineId, sessionId, isAllowed, dial: () => dial(deps, flow) },
    origin,
    received,
  );
}

type Named = { name: string; received: Buffer } | { reason: HelloReason };

/** Reads the server name and leaves the socket paused. Never rejects: without a name it resolves to a reason. */
function readName({ log, helloMs = HELLO_MS }: FrontDeps, guest: Socket): Promise<Named> {
  let received = Buffer.alloc(0);
  const { promise, resolve } = Promise.withResolvers<Named>();
  const onGone = () => resolve({ reason: received.length === 0 ? "no_name" : "malformed" });
  const take = (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
    const hello = readHello(received);
    if (hello.state === "refused") resolve({ reason: hello.reason });
    if (hello.state !== "named") return;
    guest.pause();
    resolve({ name: hello.name, received });
  };
  const onData = guarded(log, take, () => resolve({ reason: "malformed" }));
  const late = setTimeout(onGone, helloMs);
  guest.on("data", onData).once("end", onGone).once("close", onGone);
  return promise.finally(() => {
    clearTimeout(late);
    guest.off("data", onData).off("end", onGone).off("close", onGone);
  });
}
