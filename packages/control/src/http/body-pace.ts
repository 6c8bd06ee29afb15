/**
 * How slowly a request's body may arrive (security.md C13): whoever sends less than the floor is let go, whoever sends
 * more may take as long as it takes.
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { CLOSE_LIMITS } from "@vivarium/http1/close-gently";
import type { FastifyInstance } from "fastify";
import { ApiError } from "./api-error.ts";

/** 1 KiB a second, looked at every 30 s. */
export const BODY_FLOOR = { windowMs: 30_000, bytes: 30 * 1024 };
export type BodyFloor = typeof BODY_FLOOR;
/** For `clientError`, whose handler writes the answer. */
export const TOO_SLOW = "ERR_BODY_TOO_SLOW";

declare module "fastify" {
  interface FastifyContextConfig {
    /** The route reads the body itself, at the pace of whoever takes it. */
    takesRawBody?: boolean;
  }
}

export function giveUpSlowBodies(server: FastifyInstance, floor = BODY_FLOOR, farewell = CLOSE_LIMITS): void {
  server.addHook("onRequest", (request, reply, done) => {
    const { raw, routeOptions } = request;
    if (hasBody(raw)) {
      if (routeOptions.config.takesRawBody) reply.raw.once("finish", () => dropRest(raw, farewell));
      else watch(raw, floor, (socket) => refuseRest(server, socket));
    }
    done();
  });
}

function refuseRest(server: FastifyInstance, socket: Socket): void {
  const error = Object.assign(new Error("the body arrives too slowly"), { code: TOO_SLOW });
  server.server.emit("clientError", error, socket);
}

/**
 * A client that was answered before its body was read may read the answer only once it has sent all: it may go on for a
 * while, as long as it is not silent.
 */
function dropRest(raw: IncomingMessage, farewell: typeof CLOSE_LIMITS): void {
  if (raw.complete) return;
  const cutOff = () => raw.socket.destroy();
  watch(raw, { windowMs: farewell.ms, bytes: 1 }, cutOff);
  const late = setTimeout(cutOff, farewell.inAllMs).unref();
  raw.once("close", () => clearTimeout(late));
}

/** For bodies that are read as they come: what does not arrive has not been sent. */
function watch(raw: IncomingMessage, floor: BodyFloor, giveUp: (socket: Socket) => void): void {
  const { socket } = raw;
  let seen = socket.bytesRead;
  const look = () => {
    const arrived = socket.bytesRead - seen;
    seen = socket.bytesRead;
    if (raw.complete || socket.destroyed) return stop();
    if (arrived >= floor.bytes) return;
    stop();
    giveUp(socket);
  };
  // What arrived during a stall of this process is read before the look: timers run first, then reads, then immediates.
  const looks = setInterval(() => setImmediate(look), floor.windowMs).unref();
  const stop = () => clearInterval(looks);
  raw.once("end", stop).once("close", stop);
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/** The body as it comes, for a route that hands it on. Time in which nobody asks for more is not the client's. */
export class PacedBody extends Readable {
  readonly #body: IncomingMessage;
  readonly #floor: BodyFloor;
  readonly #look: NodeJS.Timeout;
  /** Since when more is wanted; undefined while there is enough. */
  #askedAt: number | undefined;
  #waitedMs = 0;
  #bytes = 0;
  #wasRead = false;

  constructor(body: IncomingMessage, floor = BODY_FLOOR) {
    super();
    this.#body = body;
    this.#floor = floor;
    this.#look = setInterval(() => this.#checkPace(), floor.windowMs / 10).unref();
    body.on("data", this.#take).once("end", this.#end).once("error", this.#fail).once("close", this.#close);
    body.pause();
    // A body that breaks off while nobody reads it, its session being woken for it, is noticed by whoever reads it then.
    this.on("error", () => {});
  }

  /** Whether anything of the body came out here: then it cannot be sent from its beginning again. */
  get wasRead(): boolean {
    return this.#wasRead;
  }

  /** Nobody wants the rest: it is read and thrown away, so that its sender comes to read the answer. */
  letGo(): void {
    this.destroy();
    this.#body.on("error", () => {}).resume();
  }

  override _read(): void {
    this.#askedAt ??= performance.now();
    this.#body.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearInterval(this.#look);
    this.#body.off("data", this.#take).off("end", this.#end).off("close", this.#close).pause();
    done(error);
  }

  readonly #take = (chunk: Buffer): void => {
    this.#wasRead = true;
    const now = performance.now();
    this.#waitedMs += now - (this.#askedAt ?? now);
    this.#bytes += chunk.length;
    if (this.#bytes >= this.#floor.bytes) this.#waitedMs = this.#bytes = 0;
    const wantsMore = this.push(chunk);
    this.#askedAt = wantsMore ? now : undefined;
    if (!wantsMore) this.#body.pause();
  };
  readonly #end = (): void => {
    clearInterval(this.#look);
    this.push(null);
  };
  readonly #fail = (error: Error): void => {
    this.destroy(error);
  };
  readonly #close = (): void => {
    if (!this.#body.readableEnded) this.destroy(cutShort());
  };

  #checkPace(): void {
    const waitedMs = this.#waitedMs + (this.#askedAt === undefined ? 0 : performance.now() - this.#askedAt);
    if (waitedMs >= this.#floor.windowMs) this.destroy(tooSlow(this.#floor));
  }
}

function cutShort(): Error {
  return Object.assign(new Error("the client left while it sent the body"), { code: "ECONNRESET" });
}

function tooSlow({ windowMs, bytes }: BodyFloor): ApiError {
  return new ApiError(
    "validation",
    `request body: it arrives too slowly; at least ${bytes} bytes every ${windowMs / 1000} seconds are expected`,
  );
}
