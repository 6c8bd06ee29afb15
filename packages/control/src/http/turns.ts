/**
 * Closes: a client that sends many requests ahead on one connection must not fill memory with their answers.
 *
 * Node sends answers in order and stops reading once answers of 64 KiB wait. But it bounds no handlers: a request whose
 * answer is not written yet counts for nothing. Measured with node:http 24, 10,000 pipelined GETs and handlers that take
 * seconds: all 10,000 run at once, for 20 MiB of heap; with heads of 8 KB 96 MiB. With handlers that answer at once 1,490.
 *
 * Pipelined requests are handled one after the other. An earlier answer may be the last one of the connection; then the
 * requests behind it must not be carried out, because their client would never get an answer.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { endGently } from "@vivarium/http1/close-gently";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { FastifyInstance, FastifyReply } from "fastify";

/** Each request costs memory until its turn. A client that sends more than this ahead loses its connection. */
const MAX_AHEAD = 64;

/** The pipelined requests of one connection. */
interface Line {
  waiting: Map<ServerResponse, () => void>;
  /** The last response that ended before all of its request had arrived. */
  early?: ServerResponse;
  /** No further request is read from the connection. */
  isCut: boolean;
}

const lines = new WeakMap<Duplex, Line>();

export function takeTurns(server: FastifyInstance): void {
  server.server.prependListener("connection", (socket) => {
    const line: Line = { waiting: new Map(), isCut: false };
    lines.set(socket, line);
    // Node ends a connection after its last answer with this, and resets it while the client still sends.
    socket.destroySoon = () => {
      cutOff(socket, line);
      endGently(socket);
    };
    // Its listener must run before the next one: the waiting requests then find that it is no one's turn.
    pipelineOf(socket);
    socket.once("close", () => {
      for (const go of line.waiting.values()) go();
    });
  });
  server.server.prependListener("request", ({ socket }: IncomingMessage, response: ServerResponse) => {
    const line = lines.get(socket);
    if (line && !line.isCut) join(line, socket, response);
  });
  server.addHook("onRequest", (_request, reply, done) => inTurn(reply, done));
}

/** Calls back when all earlier requests are answered; never, when no one could get the answer any more. */
export function inTurn(reply: FastifyReply, then: () => void): void {
  const { socket } = reply.request.raw;
  const line = lines.get(socket);
  const pipeline = pipelineOf(socket);
  const isItsTurn = () => pipeline.first === reply.raw;
  if (!line || isItsTurn()) {
    then();
    return;
  }
  const go = () => {
    if (isItsTurn() && socket.writable) then();
    else reply.hijack();
  };
  if (pipeline.has(reply.raw)) line.waiting.set(reply.raw, go);
  else go();
}

function join(line: Line, socket: Duplex, response: ServerResponse): void {
  const pipeline = pipelineOf(socket);
  if (!pipeline.add(response, MAX_AHEAD)) {
    cutOff(socket, line);
    socket.destroy();
    return;
  }
  response.once("close", () => {
    if (!response.req.complete) line.early = response;
    const { first } = pipeline;
    const next = first && line.waiting.get(first);
    if (first) line.waiting.delete(first);
    next?.();
  });
}

function cutOff(socket: Duplex, line: Line): void {
  line.isCut = true;
  // The parser is one of these listeners.
  socket.removeAllListeners("data");
  socket.on("data", () => {}).resume();
  // A body that no one read may have stopped the reading. Only the parser would start it again, and it is gone. The stream
  // believes that a read is under way: an empty chunk ends that read, and the stream asks for the next one.
  socket.push("");
}

export function isCutOff(socket: Duplex): boolean {
  return lines.get(socket)?.isCut ?? false;
}

/** A message that cannot be read is the last of its connection. Returns whether it still needs an answer. */
export function breakOff(socket: Duplex): boolean {
  const line = lines.get(socket);
  if (!line) return true;
  cutOff(socket, line);
  const pipeline = pipelineOf(socket);
  const isAnswered = pipeline.unanswered === 0 && line.early?.req.complete === false;
  // The refusal is the answer to the request whose rest cannot be read.
  pipeline.forgetIncomplete();
  return !isAnswered;
}
