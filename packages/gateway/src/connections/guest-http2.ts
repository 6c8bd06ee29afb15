/** Serves HTTP/2 over one TLS connection of a guest to a bound origin. */
import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import { guarded } from "@vivarium/http1/guard";
import type { Header } from "@vivarium/http1/headers";
import { valuesOf } from "@vivarium/http1/headers";
import { findBadFraming } from "@vivarium/http1/strict-request";
import type { Log } from "@vivarium/kit/log";
import { guardBody } from "./bounded-stream.ts";
import { type GuestAnswer, type GuestRequest, refusalHeaders } from "./guest-request.ts";
import { fieldsOf, pairsOf } from "./header-fields.ts";
import type { Lingering } from "./lingering.ts";

const MAX_HEADER_BYTES = 16 * 1024;
const MAX_STREAMS = 64;
/** Bytes of a request's body that may be in flight unread: a guest is near, so a small window is fast enough. */
const WINDOW_BYTES = 64 * 1024 - 1;

interface Refusing {
  /** Refused requests of the session. */
  refused: Lingering;
  /** Time in which the guest takes the answer to one. */
  refusalMs: number;
}

/** Header blocks larger than the limit are refused like other invalid requests. */
export function serveHttp2(
  socket: TLSSocket,
  { log, idleMs, ...refusing }: { log: Log; idleMs: number } & Refusing,
  serve: (request: GuestRequest) => void,
): ServerHttp2Session {
  const session = performServerHandshake(socket, {
    maxSessionMemory: 10,
    maxSendHeaderBlockLength: 128 * 1024,
    settings: {
      enablePush: false,
      enableConnectProtocol: false,
      initialWindowSize: WINDOW_BYTES,
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: MAX_HEADER_BYTES,
    },
  } satisfies Parameters<typeof performServerHandshake>[1]);
  session.on("error", () => session.destroy());
  session.setTimeout(idleMs, () => session.destroy());
  const onStream = (stream: ServerHttp2Stream, fields: IncomingHttpHeaders, flags: number) => {
    stream.on("error", () => {});
    guardBody(stream);
    serve(toGuestRequest(stream, { fields, flags, log, ...refusing }));
  };
  session.on(
    "stream",
    guarded(log, onStream, (stream) => stream.destroy()),
  );
  return session;
}

function toGuestRequest(
  stream: ServerHttp2Stream,
  { fields, flags, ...deps }: { fields: IncomingHttpHeaders; flags: number; log: Log } & Refusing,
): GuestRequest {
  const all = pairsOf(fields);
  const hosts = valuesOf(all, "host");
  const authority = fields[":authority"];
  const bytes = all.reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0);
  return {
    method: fields[":method"] ?? "",
    target: fields[":path"] ?? "",
    authorities: [...new Set([...(authority === undefined ? [] : [authority]), ...hosts])],
    headers: all,
    badFraming: bytes > MAX_HEADER_BYTES ? "the headers are too long" : findBadFraming("2.0", all),
    body: stream,
    hasBody: (flags & constants.NGHTTP2_FLAG_END_STREAM) === 0,
    answer: new Http2Answer(stream, deps),
  };
}

class Http2Answer implements GuestAnswer {
  readonly to: ServerHttp2Stream;
  readonly #refusing: Refusing;
  #trailers: readonly Header[] = [];

  constructor(stream: ServerHttp2Stream, { log, ...refusing }: { log: Log } & Refusing) {
    this.to = stream;
    this.#refusing = refusing;
    const onWanted = () => {
      // A stream that was cut meanwhile has no end to announce.
      if (stream.destroyed || stream.closed) return;
      stream.sendTrailers(fieldsOf(this.#trailers));
      this.#stopReading();
    };
    // Node throws for trailers that HTTP/2 cannot carry.
    stream.on(
      "wantTrailers",
      guarded(log, onWanted, () => this.cut()),
    );
  }

  get isOpen(): boolean {
    return !this.to.headersSent && !this.to.destroyed && !this.to.closed;
  }

  welcome(): void {
    this.to.additionalHeaders({ ":status": 100 });
  }

  sendHead(status: number, headers: readonly Header[], isLast: boolean): void {
    const fields = { ...fieldsOf(headers), ":status": status };
    this.to.respond(fields, { endStream: isLast, waitForTrailers: !isLast });
    if (isLast) this.#stopReading();
  }

  end(trailers: readonly Header[]): void {
    this.#trailers = trailers;
    this.to.end();
  }

  refuse(status: number, body: string): void {
    this.to.respond({ ...fieldsOf(refusalHeaders(body)), ":status": status });
    this.to.end(body, () => this.#stopReading());
    const { refused, refusalMs } = this.#refusing;
    refused.add(this.to, refusalMs);
  }

  cut(): void {
    this.to.destroy(new Error("the answer broke off"));
  }

  onceOver(callback: () => void): void {
    this.to.once("close", callback);
  }

  /** A guest that still sends its body is asked to stop, once the answer has left (RFC 9113 8.1). */
  #stopReading(): void {
    const { to: stream } = this;
    if (stream.endAfterHeaders || stream.readableEnded) stream.resume();
    else setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
  }
}
