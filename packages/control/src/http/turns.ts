/**
 * Requests that a client sends ahead on one connection. They are handled one after the other, so that what is done is also
 * answered: the answer before may be the last that the connection carries.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { endGently } from "@vivarium/http1/close-gently";
import type { FastifyInstance, FastifyReply } from "fastify";

/** More than clients send ahead. Who sends more loses the connection: each costs memory until its turn. */
const AHEAD = 64;

/** What one connection waits for. */
interface Line {
  /** In the order of their requests; the first is the one being handled. */
  unanswered: ServerResponse[];
  waiting: Map<ServerResponse, () => void>;
  afterAll?: () => void;
  /** The last that was answered before all of its request had arrived. */
  early?: ServerResponse;
  /** No further request is read from it. */
  isCut: boolean;
}

const lines = new WeakMap<Duplex, Line>();

export function takeTurns(server: FastifyInstance): void {
  server.server.prependListener("connection", (socket) => {
    const line: Line = { unanswered: [], waiting: new Map(), isCut: false };
    lines.set(socket, line);
    // Node's way to end a connection after its last answer, which closes it on a client that still sends.
    socket.destroySoon = () => {
      cutOff(socket, line);
      endGently(socket);
    };
    socket.once("close", () => {
      line.unanswered = [];
      for (const go of line.waiting.values()) go();
    });
  });
  server.server.prependListener("request", ({ socket }: IncomingMessage, response: ServerResponse) => {
    const line = lines.get(socket);
    if (line && !line.isCut) join(line, socket, response);
  });
  server.addHook("onRequest", (_request, reply, done) => inTurn(reply, done));
}

/** Calls back when all that was asked before is answered; never, when nobody would be told of what is done. */
export function inTurn(reply: FastifyReply, then: () => void): void {
  const { socket } = reply.request.raw;
  const line = lines.get(socket);
  const isItsTurn = () => line?.unanswered[0] === reply.raw;
  if (!line || isItsTurn()) {
    then();
    return;
  }
  const go = () => {
    if (isItsTurn() && socket.writable) then();
    else reply.hijack();
  };
  if (line.unanswered.includes(reply.raw)) line.waiting.set(reply.raw, go);
  else go();
}

function join(line: Line, socket: Duplex, response: ServerResponse): void {
  if (line.unanswered.length >= AHEAD) {
    cutOff(socket, line);
    socket.destroy();
    return;
  }
  line.unanswered.push(response);
  response.once("close", () => {
    line.unanswered = line.unanswered.filter((other) => other !== response);
    if (!response.req.complete) line.early = response;
    callNext(line);
  });
}

function callNext(line: Line): void {
  const [next] = line.unanswered;
  const go = next ? line.waiting.get(next) : line.afterAll;
  if (next) line.waiting.delete(next);
  go?.();
}

/** Calls back once everything that was asked before on this connection is answered. */
export function afterTurns(socket: Duplex, then: () => void): void {
  const line = lines.get(socket);
  if (!line || line.unanswered.length === 0) then();
  else line.afterAll = then;
}

export function isAnswering(socket: Duplex): boolean {
  return (lines.get(socket)?.unanswered.length ?? 0) > 0;
}

function cutOff(socket: Duplex, line: Line): void {
  line.isCut = true;
  // Among them is the parser.
  socket.removeAllListeners("data");
  socket.on("data", () => {}).resume();
  // While the parser had it, a body that nobody took may have stopped the reading. What starts it again left with the parser,
  // and the stream takes a read to be under way, which an empty chunk ends: the stream asks for the next one itself.
  socket.push("");
}

export function isCutOff(socket: Duplex): boolean {
  return lines.get(socket)?.isCut ?? false;
}

/** A message that cannot be read is the last of its connection. Says whether it is yet to be answered. */
export function breakOff(socket: Duplex): boolean {
  const line = lines.get(socket);
  if (!line) return true;
  cutOff(socket, line);
  const isAnswered = line.unanswered.length === 0 && line.early?.req.complete === false;
  // What it was itself, if that much was read, is answered by what cannot be read of it.
  line.unanswered = line.unanswered.filter(({ req }) => req.complete);
  return !isAnswered;
}
