import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { grantsWebSocket, isAnswer } from "../answer-head.ts";
import { contained, type Heed } from "../contain.ts";
import { headerPairs } from "../header-pairs.ts";
import { answerHeaders, openUpstream } from "./forward-request.ts";
import type { AdmittedRequest } from "./http-front.ts";
import { valuesOf } from "./http-request.ts";
import { closeWith, NO_ANSWER, type Refusal, refusalOf } from "./refuse-request.ts";
import { splice } from "./splice.ts";

/** Nobody reads the guest's end meanwhile, so a guest that left is noticed only after this. */
const ANSWER_MS = 60_000;

/** A WebSocket: bytes pass unread only after its server agreed to one. */
export function forwardUpgrade(admitted: AdmittedRequest, early: Buffer): void {
  const { flow, log } = admitted.connection;
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
  let state: "asking" | "begun" | "refused" = "asking";
  const refuse = (refusal: Refusal) => {
    // Into an answer that has begun nothing of ours may come.
    if (state === "begun") flow.guest.destroy();
    if (state === "asking") closeWith(flow, refusal);
    if (state === "asking") state = "refused";
    upstream.destroy();
  };
  const heed: Heed = (handler) =>
    contained(
      log,
      handler,
      () => refuse(NO_ANSWER),
      () => flow.cut("not_reachable"),
    );
  /** Parsers read on in what came together, also behind what ended the request. */
  const isHeard = () => state === "asking" && !upstream.destroyed;
  const onUpgrade = (answer: IncomingMessage, socket: Duplex, first: Buffer) => {
    if (!isHeard() || !grantsWebSocket(answer)) {
      socket.destroy();
      refuse(NO_ANSWER);
      return;
    }
    state = "begun";
    const headers = answerHeaders(answer, ["transfer-encoding", "content-length"]);
    socket.removeAllListeners("timeout");
    writeHead(flow.guest, 101, [...headers, "Connection", "Upgrade", "Upgrade", "websocket"]);
    flow.guest.write(first);
    socket.write(early);
    splice(flow.guest, socket as Socket);
  };
  upstream.on("upgrade", heed(onUpgrade));
  const onAnswer = (answer: IncomingMessage) => {
    if (!isHeard() || !isAnswer(answer)) return refuse(NO_ANSWER);
    state = "begun";
    writeHead(flow.guest, answer.statusCode ?? 502, [...answerHeaders(answer), "Connection", "close"]);
    answer.on("error", () => flow.guest.destroy());
    flow.guest.once("end", () => flow.guest.destroy()).resume();
    answer.pipe(flow.guest);
    flow.guest.once("finish", () => flow.guest.destroySoon());
  };
  upstream.on("response", heed(onAnswer));
  upstream.on(
    "error",
    heed((error) => refuse(refusalOf(error))),
  );
  upstream.setTimeout(ANSWER_MS, () => upstream.destroy(new Error("the server did not answer")));
  upstream.end();
}

function writeHead(guest: Socket, status: number, headers: string[]): void {
  const lines = headerPairs(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  guest.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "unknown"}\r\n${lines.join("")}\r\n`, "latin1");
}
