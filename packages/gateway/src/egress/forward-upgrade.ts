import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { answerHeaders, openUpstream } from "./forward-request.ts";
import type { AdmittedRequest } from "./http-front.ts";
import { valuesOf } from "./http-request.ts";
import { closeWith, refusalOf } from "./refuse-request.ts";
import { splice } from "./splice.ts";

/** Nobody reads the guest's end meanwhile, so a guest that left is noticed only after this. */
const ANSWER_MS = 60_000;

/** A WebSocket: bytes pass unread only after its server agreed to one. */
export function forwardUpgrade(admitted: AdmittedRequest, early: Buffer): void {
  const { flow } = admitted.connection;
  const hasBody = ["content-length", "transfer-encoding"].some(
    (name) => valuesOf(admitted.headers, name).length > 0,
  );
  const upstream = hasBody
    ? undefined
    : openUpstream(admitted, [...admitted.headers, "Connection", "Upgrade", "Upgrade", "websocket"]);
  if (!upstream) {
    closeWith(flow, { refused: "malformed", why: "a request for a WebSocket has no body" });
    return;
  }
  let hasBegun = false;
  upstream.on("upgrade", (answer: IncomingMessage, socket: Duplex, first: Buffer) => {
    hasBegun = true;
    const headers = [...answerHeaders(answer), "Connection", "Upgrade", "Upgrade", "websocket"];
    socket.removeAllListeners("timeout");
    writeHead(flow.guest, answer, headers);
    flow.guest.write(first);
    socket.write(early);
    splice(flow.guest, socket as Socket);
  });
  upstream.on("response", (answer) => {
    hasBegun = true;
    writeHead(flow.guest, answer, [...answerHeaders(answer), "Connection", "close"]);
    answer.on("error", () => flow.guest.destroy());
    flow.guest.once("end", () => flow.guest.destroy()).resume();
    answer.pipe(flow.guest);
    flow.guest.once("finish", () => flow.guest.destroySoon());
  });
  // Into an answer that has begun nothing of ours may come.
  upstream.on("error", (error) => (hasBegun ? flow.guest.destroy() : closeWith(flow, refusalOf(error))));
  upstream.setTimeout(ANSWER_MS, () => upstream.destroy(new Error("the server did not answer")));
  upstream.end();
}

function writeHead(
  guest: Socket,
  { statusCode = 502, statusMessage }: IncomingMessage,
  headers: string[],
): void {
  const lines = [`HTTP/1.1 ${statusCode} ${statusMessage ?? STATUS_CODES[statusCode] ?? ""}`];
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
  guest.write(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}
