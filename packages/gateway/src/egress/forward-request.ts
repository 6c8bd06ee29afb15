import {
  type ClientRequest,
  type IncomingMessage,
  request as openRequest,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { isAnswer, lengthLast, sendHead } from "../answer-head.ts";
import { contained, type Heed } from "../contain.ts";
import { headerPairs } from "../header-pairs.ts";
import { leaveUnread } from "../leave-unread.ts";
import { pour } from "../pour.ts";
import type { AdmittedRequest } from "./http-front.ts";
import { withoutHopByHop } from "./http-request.ts";
import { NO_ANSWER, type Refusal, refusalOf, respondWith } from "./refuse-request.ts";

/** What a server may answer with; a guest's own parser sets its own bounds. */
const MAX_RESPONSE_HEADER_BYTES = 64 * 1024;
const MAX_INTERIM_ANSWERS = 16;

/** Writes the request anew to its server, and the answer back, both as they come. */
export function forwardRequest(admitted: AdmittedRequest, response: ServerResponse): void {
  const { connection, request } = admitted;
  const { flow } = connection;
  const upstream = openUpstream(admitted, admitted.headers);
  if (!upstream) {
    respondWith(response, flow, { refused: "malformed", why: "the request cannot be written anew" });
    return;
  }
  let isRefused = false;
  const refuse = (refusal: Refusal) => {
    if (isRefused) return;
    isRefused = true;
    respondWith(response, flow, refusal);
    upstream.destroy();
  };
  const heed: Heed = (handler) =>
    contained(
      connection.log,
      handler,
      () => refuse(NO_ANSWER),
      () => flow.cut("not_reachable"),
    );
  // Its end is looked after below; an error without a listener would end the process.
  request.on("error", () => upstream.destroy());
  response.on("error", () => upstream.destroy());
  // A server may say it as often as it likes; the guest is told once, if it waits for that.
  if (/\b100-continue\b/i.test(request.headers.expect ?? "")) {
    upstream.once(
      "continue",
      heed(() => response.writeContinue()),
    );
  }
  const onAnswer = (answer: IncomingMessage) => {
    // Parsers read on in what came together, also behind what ended the request.
    if (upstream.destroyed) return;
    if (isAnswer(answer)) relay(answer, response, heed);
    else refuse(NO_ANSWER);
  };
  upstream.on("response", heed(onAnswer));
  const onUpgrade = (_: IncomingMessage, socket: Duplex) => {
    socket.destroy();
    refuse(NO_ANSWER);
  };
  upstream.on("upgrade", heed(onUpgrade));
  const onError = (error: Error) => {
    if (isRefused) return;
    // A kept connection that its server has just closed: the guest sees what it would see without a gateway.
    if (upstream.reusedSocket && !response.headersSent && isClosing(error)) flow.guest.resetAndDestroy();
    else if (response.headersSent) breakOff(response);
    else refuse(refusalOf(error));
  };
  upstream.on("error", heed(onError));
  response.once("close", () => {
    if (!response.writableFinished) upstream.destroy();
  });
  // A server may answer and go before it has read the body: what is left of that would hold up the connection.
  upstream.once("close", () => {
    if (!request.complete) leaveUnread(request, flow.guest);
  });
  pour(request, upstream, heed);
}

/** Not what was answered, but that nothing was. */
function isClosing({ code }: NodeJS.ErrnoException): boolean {
  return code === "ECONNRESET" || code === "EPIPE";
}

/** Undefined where the runtime refuses to write such a request. */
export function openUpstream(
  { connection, request, path }: AdmittedRequest,
  headers: string[],
): ClientRequest | undefined {
  try {
    const upstream = openRequest({
      agent: connection.agent,
      method: request.method,
      path,
      headers: lengthLast(headers),
      maxHeaderSize: MAX_RESPONSE_HEADER_BYTES,
    });
    upstream.maxHeadersCount = 0;
    boundInterim(upstream);
    return upstream;
  } catch {
    return undefined;
  }
}

/** A server that says nothing but interim answers is not listened to for ever. */
function boundInterim(upstream: ClientRequest): void {
  let interim = 0;
  upstream.on("information", () => {
    interim += 1;
    if (interim > MAX_INTERIM_ANSWERS) upstream.destroy(new Error("the server does not come to its answer"));
  });
}

function relay(answer: IncomingMessage, response: ServerResponse, heed: Heed): void {
  answer.on("error", () => breakOff(response));
  response.sendDate = false;
  sendHead(response, answer.statusCode ?? 502, answerHeaders(answer));
  pour(answer, response, heed);
}

/** In its turn: while those before it are on their way, a response has no connection that could end. */
function breakOff(response: ServerResponse): void {
  if (response.socket) response.destroy();
  else response.once("socket", (guest: Socket) => guest.destroy());
}

/** How the answer's body is framed is anew decided between gateway and guest. */
export function answerHeaders(answer: IncomingMessage, without = ["transfer-encoding"]): string[] {
  return headerPairs(withoutHopByHop(answer.rawHeaders))
    .filter(([name]) => !without.includes(name.toLowerCase()))
    .flat();
}
