/**
 * Requests that a client sends ahead on one connection. They are handled one after the other, so that what is done is also
 * answered: the answer before may be the last that the connection carries.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { FastifyInstance } from "fastify";
import { endGently } from "./farewell.ts";

/** More than clients send ahead. Whatever follows is not read, or it would be memory. */
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
  server.addHook("onRequest", ({ raw: { socket } }, reply, done) => {
    const line = lines.get(socket);
    const isItsTurn = () => line?.unanswered[0] === reply.raw;
    if (!line || isItsTurn()) return done();
    const go = () => {
      // Nothing is done that nobody would be told of.
      if (isItsTurn() && socket.writable) done();
      else reply.hijack();
    };
    if (line.unanswered.includes(reply.raw)) line.waiting.set(reply.raw, go);
    else go();
  });
}

function join(line: Line, socket: Duplex, response: ServerResponse): void {
  const last = line.unanswered.at(-1);
  if (last && line.unanswered.length >= AHEAD) {
    last.shouldKeepAlive = false;
    cutOff(socket, line);
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

function cutOff(socket: Duplex, line: Line): void {
  line.isCut = true;
  // Among them is the parser.
  socket.removeAllListeners("data");
  socket.on("data", () => {}).resume();
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
