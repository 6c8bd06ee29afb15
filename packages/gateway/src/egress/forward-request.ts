import {
  type ClientRequest,
  type IncomingMessage,
  request as openRequest,
  type ServerResponse,
} from "node:http";
import { leaveUnread } from "../leave-unread.ts";
import { pour } from "../pour.ts";
import type { AdmittedRequest } from "./http-front.ts";
import { valuesOf, withoutHopByHop } from "./http-request.ts";
import { refusalOf, respondWith } from "./refuse-request.ts";

/** What a server may answer with; a guest's own parser sets its own bounds. */
const MAX_RESPONSE_HEADER_BYTES = 64 * 1024;
const MAX_INTERIM_ANSWERS = 16;

/** Writes the request anew to its server, and the answer back, both as they come. */
export function forwardRequest(admitted: AdmittedRequest, response: ServerResponse): void {
  const { connection, request } = admitted;
  const upstream = openUpstream(admitted, admitted.headers);
  if (!upstream) {
    respondWith(response, connection.flow, {
      refused: "malformed",
      why: "the request cannot be written anew",
    });
    return;
  }
  // Their ends are looked after below; an error without a listener would end the process.
  request.on("error", () => upstream.destroy());
  response.on("error", () => upstream.destroy());
  // A server may say it as often as it likes; the guest is told once, if it waits for that.
  if (/\b100-continue\b/i.test(request.headers.expect ?? "")) {
    upstream.once("continue", () => response.writeContinue());
  }
  upstream.on("response", (answer) => relay(answer, response));
  upstream.on("error", (error) => {
    // A kept connection that its server has just closed: the guest sees what it would see without a gateway.
    if (upstream.reusedSocket && !response.headersSent) connection.flow.guest.resetAndDestroy();
    else if (response.headersSent) response.destroy();
    else respondWith(response, connection.flow, refusalOf(error));
  });
  response.once("close", () => {
    if (!response.writableFinished) upstream.destroy();
  });
  // A server may answer and go before it has read the body: what is left of that would hold up the connection.
  upstream.once("close", () => {
    if (!request.complete) leaveUnread(request, connection.flow.guest);
  });
  pour(request, upstream);
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
      headers,
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

function relay(answer: IncomingMessage, response: ServerResponse): void {
  // A coding besides chunked was not taken off: the guest would get it without its name.
  const codings = valuesOf(answer.rawHeaders, "transfer-encoding");
  if (codings.some((coding) => coding.toLowerCase() !== "chunked")) {
    response.destroy();
    return;
  }
  response.sendDate = false;
  try {
    response.writeHead(answer.statusCode ?? 502, answer.statusMessage, answerHeaders(answer));
  } catch {
    response.destroy();
    return;
  }
  answer.on("error", () => response.destroy());
  pour(answer, response);
}

/** How the answer's body is framed is anew decided between gateway and guest. */
export function answerHeaders(answer: IncomingMessage): string[] {
  const headers = withoutHopByHop(answer.rawHeaders);
  const kept: string[] = [];
  for (let at = 0; at < headers.length; at += 2) {
    if (headers[at]?.toLowerCase() === "transfer-encoding") continue;
    kept.push(headers[at] ?? "", headers[at + 1] ?? "");
  }
  return kept;
}
