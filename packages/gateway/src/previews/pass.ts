/**
 * Hands one admitted request to the guest and its answer to the visitor, each side only as fast as the other reads.
 *
 * On `node:http` itself: the proxy libraries looked at (httpxy, http-proxy, reply-from) pool connections to the backend,
 * extend forwarding headers instead of replacing them, pass an upgrade's answer unread, and would still need every rule
 * of `pass-headers.ts` around them. Each request has a connection of its own, so nothing one visitor left in it can
 * reach another.
 */
import {
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { connect, type Socket } from "node:net";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import { grantsWebSocket, isAnswer, lengthLast, sendHead } from "../answer-head.ts";
import { contained, type Heed } from "../contain.ts";
import { leaveUnread } from "../leave-unread.ts";
import { pour } from "../pour.ts";
import type { Flow } from "./flows.ts";
import { badAnswer, NO_ANSWER, nothingListens, type Page, sendPage, UNAVAILABLE } from "./pages.ts";
import { headersForGuest, headersForVisitor, pathForGuest } from "./pass-headers.ts";
import { passUpgrade } from "./pass-upgrade.ts";
import type { IsTrustedProxy } from "./trusted-proxies.ts";
import type { Visit } from "./visit.ts";

/** Of a guest's answer, all headers together. */
const MAX_ANSWER_HEADER_BYTES = 64 * 1024;
const MAX_INTERIM_ANSWERS = 16;
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
  flow: Flow;
  address: string;
  secure: boolean;
  isTrustedProxy: IsTrustedProxy;
  setCookie?: string;
  log: Log;
}

/** What becomes of a request that its guest does not answer. */
interface Ends {
  /** Tells the visitor so. */
  fail: (page: Page) => void;
  heed: Heed;
}

/**
 * Resolves when neither side has anything more to do with it; to `machine_gone` when the guest's machine went before it
 * answered, and the request may be asked again.
 */
export async function pass(passage: Passage): Promise<"over" | "machine_gone"> {
  const { flow, request, response, visit } = passage;
  flow.enter("connecting");
  const guest = ask(passage);
  flow.guest = guest;
  const fail = (page: Page) => {
    if (response.headersSent || flow.phase === "passing") flow.visitor.destroy();
    else sendPage(response, visit, page);
    guest.destroy();
  };
  const failBad = () => fail(badAnswer(passage.route.port));
  const heed: Heed = (handler) => contained(passage.log, handler, failBad, () => flow.cut());
  const gone = Promise.withResolvers<"machine_gone">();
  flow.onMachineGone = heed(() => {
    if (isRepeatable(passage)) gone.resolve("machine_gone");
    else fail(UNAVAILABLE);
  });
  flow.onSlowGuest = heed(() =>
    fail(flow.phase === "connecting" ? nothingListens(passage.route.port) : NO_ANSWER),
  );
  heedGuest(passage, guest, { fail, heed });
  if (visit.isUpgrade) guest.end();
  else passBody(passage, guest, heed);
  if ((await Promise.race([over(passage), gone.promise])) === "machine_gone") return "machine_gone";
  const isGranted = visit.isUpgrade && flow.phase === "passing" && !response.headersSent;
  if (isGranted) {
    // What either side still sends arrives.
    await closed(flow.guestSocket);
    return "over";
  }
  guest.destroy();
  if (flow.owesBody()) leaveUnread(request, flow.visitor);
  return "over";
}

/** Takes the one answer of the guest, whatever it is. */
function heedGuest(passage: Passage, guest: ClientRequest, { fail, heed }: Ends): void {
  const { flow, response, visit, setCookie } = passage;
  const failBad = () => fail(badAnswer(passage.route.port));
  /** Parsers read on in what came together, also behind what ended the request, or a machine that is gone. */
  const isHeard = () => flow.guest === guest && !response.headersSent;
  guest.once("socket", (socket) => {
    flow.guestSocket = socket;
    socket.once("connect", () => flow.enter("asking"));
  });
  const onError = () => {
    if (!isHeard()) return;
    if (flow.phase === "connecting") fail(nothingListens(passage.route.port));
    else if (flow.phase === "asking") failBad();
  };
  guest.on("error", heed(onError));
  const onTooMany = () => {
    if (isHeard()) failBad();
  };
  countInterim(guest, heed(onTooMany));
  const onAnswer = (answer: IncomingMessage) => {
    if (!isHeard()) return;
    if (!isAnswer(answer)) return failBad();
    flow.enter("passing");
    // Node has let go of the connection: nobody else would notice that its visitor left.
    if (visit.isUpgrade) flow.visitor.once("end", () => flow.visitor.destroy()).resume();
    passAnswer(passage, answer, heed);
  };
  guest.once("response", heed(onAnswer));
  const onUpgrade = (answer: IncomingMessage, socket: Socket, head: Buffer) => {
    if (!isHeard() || !visit.isUpgrade || !grantsWebSocket(answer)) {
      socket.destroy();
      if (isHeard()) failBad();
      return;
    }
    flow.enter("passing");
    response.detachSocket(flow.visitor);
    passUpgrade({ answer, head, guest: socket, visitor: flow.visitor, setCookie });
  };
  guest.once("upgrade", heed(onUpgrade));
}

/** Asked twice it is the same as once (RFC 9110 9.2.2), and all of it is still here. */
function isRepeatable({ request }: Passage): boolean {
  const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
  return ["GET", "HEAD"].includes(request.method ?? "") && length === "0" && coding === undefined;
}

function ask({ visit, route, request, address, secure, isTrustedProxy, flow }: Passage): ClientRequest {
  const peer = flow.visitor.remoteAddress ?? "";
  const guest = httpRequest({
    method: request.method,
    path: pathForGuest(visit, route),
    headers: lengthLast(headersForGuest(visit, { route, secure, peer, isTrustedProxy })),
    maxHeaderSize: MAX_ANSWER_HEADER_BYTES,
    insecureHTTPParser: false,
    createConnection: () => connect({ host: address, port: route.port, ...GUEST_CONNECTION }),
  });
  // Their size is the limit; past a number of them Node would drop the rest in silence.
  guest.maxHeadersCount = 0;
  return guest;
}

function passBody({ request, response }: Passage, guest: ClientRequest, heed: Heed): void {
  if (/^100-continue$/i.test(request.headers.expect ?? "")) response.writeContinue();
  request.once("error", () => guest.destroy());
  // Asked a second time.
  if (request.readableEnded) guest.end();
  else pour(request, guest, heed);
}

function passAnswer({ response, flow, setCookie }: Passage, answer: IncomingMessage, heed: Heed): void {
  answer.on("error", () => flow.visitor.destroy());
  answer.once("close", () => {
    if (!answer.complete) flow.visitor.destroy();
  });
  const headers = headersForVisitor(answer.rawHeaders);
  if (setCookie !== undefined) headers.push(["Set-Cookie", setCookie]);
  sendHead(response, answer.statusCode ?? 502, headers.flat());
  pour(answer, response, heed);
}

/** Interim answers are not passed on, and a guest that sends nothing else is not listened to for ever. */
function countInterim(guest: ClientRequest, onTooMany: () => void): void {
  let interim = 0;
  guest.on("information", () => {
    interim++;
    if (interim > MAX_INTERIM_ANSWERS) onTooMany();
  });
}

/** The answer was sent or the visitor left. */
function over({ flow, response, visit }: Passage): Promise<"over"> {
  return new Promise((resolve) => {
    const isOver = () => resolve("over");
    response.once("finish", isOver);
    response.once("close", isOver);
    // A granted upgrade has no answer any more; other connections go on to their next request.
    if (visit.isUpgrade) flow.visitor.once("close", isOver);
    if (response.writableFinished || flow.visitor.closed) isOver();
  });
}

async function closed(socket: Socket | undefined): Promise<void> {
  if (socket === undefined || socket.closed) return;
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
}
