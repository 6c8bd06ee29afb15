/**
 * Handles the pipelined requests of a connection one after the other, so that their answers cannot fill memory.
 *
 * Node sends answers in order and stops reading once answers of 64 KiB wait. But it does not limit handlers: a
 * request whose answer is not written yet does not count. Measured with node:http 24, 10,000 pipelined GETs and
 * handlers that take seconds: all 10,000 run at once, for 20 MiB of heap; with heads of 8 KB 96 MiB. With handlers
 * that answer at once 1,490 run. Another reason for the order: an earlier answer may be the last one of the
 * connection. Then the requests behind it must not be carried out, because their client would never get an answer.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { endGently } from "@vivarium/http1/close-gently";
import { pipelineOf } from "@vivarium/http1/pipelining";
import type { FastifyInstance, FastifyReply } from "fastify";

/** Most unanswered requests of a connection. Each costs memory; a client that sends more is disconnected. */
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
    // Node calls this after the last answer. Its own version resets a connection on which the client still sends.
    socket.destroySoon = () => {
      cutOff(socket, line);
      endGently(socket);
    };
    // Registers its `close` listener before the next one, so that waiting requests find an empty pipeline.
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

/** Calls back once all earlier requests of the connection are answered; never, if the connection ends before. */
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
  // Removes Node's HTTP parser, which is one of these listeners.
  socket.removeAllListeners("data");
  socket.on("data", () => {}).resume();
  // An unread body may have stopped the reading, and only the removed parser would start it again. The stream believes
  // that a read is in progress: an empty chunk ends that read, and the stream starts the next one.
  socket.push("");
}

export function isCutOff(socket: Duplex): boolean {
  return lines.get(socket)?.isCut ?? false;
}

/** Stops reading a connection with a malformed message. Returns whether that message still needs an answer. */
export function breakOff(socket: Duplex): boolean {
  const line = lines.get(socket);
  if (!line) return true;
  cutOff(socket, line);
  const pipeline = pipelineOf(socket);
  const isAnswered = pipeline.unanswered === 0 && line.early?.req.complete === false;
  // The refusal is also the answer to the request whose rest cannot be read.
  pipeline.forgetIncomplete();
  return !isAnswered;
}
