/**
 * Forwards one admitted request to the guest and the answer to the visitor, with back-pressure both ways.
 *
 * Uses `node:http`: the proxy libraries that were considered (httpxy, http-proxy, reply-from) pool connections, extend
 * forwarding headers instead of replacing them, pass an upgrade's answer unread, and would still need every rule of
 * `pass-headers.ts`. Each request has its own connection, so no visitor gets bytes that another's request left behind.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { type Failure, forward } from "@vivarium/http1/forward";
import { guarded } from "@vivarium/http1/guard";
import type { Log } from "@vivarium/kit/log";
import type { Site } from "./host.ts";
import { badAnswer, NO_ANSWER, nothingListens, type Page, sendPage, UNAVAILABLE } from "./pages.ts";
import { headersForGuest, headersForVisitor, pathForGuest } from "./pass-headers.ts";
import type { IsTrustedProxy } from "./trusted-proxies.ts";
import type { Visit } from "./visit.ts";
import type { VisitorFlow } from "./visitor-flows.ts";

const GUEST_CONNECTION = {
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 30_000,
  highWaterMark: 16 * 1024,
};

export interface Passage {
  visit: Visit;
  route: PreviewRoute;
  request: IncomingMessage;
  response: ServerResponse;
  flow: VisitorFlow;
  address: string;
  site: Pick<Site, "secure">;
  isTrustedProxy: IsTrustedProxy;
  setCookie?: string;
  log: Log;
}

/**
 * Resolves to `over` when the request has ended on both sides; to `machine_gone` when the machine was stopped before it
 * answered and the request may be repeated.
 */
export async function pass(passage: Passage): Promise<"over" | "machine_gone"> {
  const { flow, response, route, visit, log } = passage;
  flow.enter("connecting");
  const fail = (page: Page) => {
    if (response.headersSent || flow.phase === "passing") flow.visitor.destroy();
    else sendPage(response, visit, page);
  };
  const gone = Promise.withResolvers<"machine_gone">();
  flow.onMachineGone = guarded(
    log,
    () => {
      if (isRepeatable(passage)) gone.resolve("machine_gone");
      else fail(UNAVAILABLE);
    },
    () => flow.cut(),
  );
  flow.onSlowGuest = guarded(
    log,
    () => {
      fail(flow.phase === "connecting" ? nothingListens(route.port) : NO_ANSWER);
      flow.guest?.destroy();
    },
    () => flow.cut(),
  );
  forwardToGuest(passage, (failure) => fail(pageFor(failure, passage)));
  if ((await Promise.race([over(passage), gone.promise])) === "machine_gone") return "machine_gone";
  const isGranted = visit.isUpgrade && flow.phase === "passing" && !response.headersSent;
  // A WebSocket's guest side may still have bytes to read or to send.
  if (isGranted) await closed(flow.guestSocket);
  else flow.guest?.destroy();
  return "over";
}

function forwardToGuest(passage: Passage, fail: (failure: Failure) => void): void {
  const { flow, visit, route, request, response, address, site, isTrustedProxy, setCookie, log } = passage;
  const peer = flow.visitor.remoteAddress ?? "";
  const forwarding = forward({
    ...{ request, response, log, fail },
    path: pathForGuest(visit, route),
    headers: headersForGuest(visit, { route, secure: site.secure, peer, isTrustedProxy }),
    connection: {
      createConnection: () => connect({ host: address, port: route.port, ...GUEST_CONNECTION }),
    },
    upgrade: visit.isUpgrade ? { head: Buffer.alloc(0) } : undefined,
    onAnswer: (answer) => {
      flow.enter("passing");
      const headers = headersForVisitor(answer.rawHeaders);
      return setCookie === undefined ? headers : [...headers, ["Set-Cookie", setCookie]];
    },
    onConsent: (guest) => joinSockets(guest, flow.visitor),
    cut: () => flow.cut(),
  });
  flow.guest = forwarding;
  forwarding?.upstream.once("socket", (socket) => {
    flow.guestSocket = socket;
    socket.once("connect", () => flow.enter("asking"));
  });
}

function pageFor(failure: Failure, { flow, route }: Passage): Page {
  const isUnreached = failure.why === "no answer" && flow.phase === "connecting";
  return isUnreached ? nothingListens(route.port) : badAnswer(route.port);
}

/** Whether the request can be sent again: it is idempotent (RFC 9110 9.2.2), and no body of it was consumed. */
function isRepeatable({ request }: Passage): boolean {
  const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
  return ["GET", "HEAD"].includes(request.method ?? "") && length === "0" && coding === undefined;
}

/** Copies bytes both ways, with back-pressure, until either side closes. */
function joinSockets(guest: Socket, visitor: Socket): void {
  guest.pipe(visitor);
  visitor.pipe(guest);
  tieEnds(guest, visitor);
  tieEnds(visitor, guest);
}

/** Closes the other socket too, after the bytes that were received before. */
function tieEnds(one: Socket, other: Socket): void {
  one.on("error", () => one.destroy());
  one.once("close", () => other.destroySoon());
}

/** Resolves when the answer was sent or the visitor has left. */
function over({ flow, response, visit }: Passage): Promise<"over"> {
  return new Promise((resolve) => {
    const isOver = () => resolve("over");
    response.once("finish", isOver);
    response.once("close", isOver);
    // A granted WebSocket never emits `finish` on its response.
    if (visit.isUpgrade) flow.visitor.once("close", isOver);
    if (response.writableFinished || flow.visitor.closed) isOver();
  });
}

async function closed(socket: Socket | undefined): Promise<void> {
  if (socket === undefined || socket.closed) return;
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
}
