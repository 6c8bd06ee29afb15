/** Requests over one HTTP/2 connection to an origin. It serves one guest's connection only. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import type { Header } from "@vivarium/http1/headers";
import { guardBody } from "./bounded-stream.ts";
import { fieldsOf, pairsOf } from "./header-fields.ts";
import {
  type Hearing,
  MAX_ANSWER_HEADER_BYTES,
  MAX_INTERIM,
  type Sending,
  type Upstream,
  type UpstreamRequest,
} from "./upstream.ts";

export class Http2Upstream implements Upstream {
  readonly #session: ClientHttp2Session;
  readonly #host: string;
  readonly #secretHeader: string;
  #isLeaving = false;

  constructor(socket: TLSSocket, { host, secretHeader }: { host: string; secretHeader: string }) {
    this.#host = host;
    this.#secretHeader = secretHeader;
    this.#session = connect(`https://${host}`, {
      createConnection: () => socket,
      settings: { enablePush: false, maxHeaderListSize: MAX_ANSWER_HEADER_BYTES },
    });
    this.#session
      .on("error", () => {})
      .once("goaway", () => {
        this.#isLeaving = true;
      });
  }

  get isUsable(): boolean {
    return !this.#isLeaving && !this.#session.closed && !this.#session.destroyed;
  }

  send(sent: UpstreamRequest, hearing: Hearing): Sending {
    // Not `close`: it would end the body first, so that a broken upload looked whole to the origin.
    const cancelling = new AbortController();
    const cancel = () => cancelling.abort();
    const stream = this.#session.request(
      {
        ...fieldsOf(sent.headers, this.#secretHeader),
        ":method": sent.method,
        ":path": sent.target,
        ":scheme": "https",
        ":authority": this.#host,
      },
      { endStream: !sent.hasBody, signal: cancelling.signal },
    );
    guardBody(stream);
    hear(stream, { sent, cancel }, hearing);
    return { body: stream, destroy: cancel };
  }

  destroy(): void {
    this.#session.destroy();
  }
}

function hear(
  stream: ClientHttp2Stream,
  { sent, cancel }: { sent: UpstreamRequest; cancel: () => void },
  { onAnswer, onFailure }: Hearing,
): void {
  let trailers: Header[] = [];
  let interim = 0;
  let isEnded = false;
  const fail = (error: Error) => {
    cancel();
    onFailure(error);
  };
  stream.on("headers", () => {
    if (++interim > MAX_INTERIM) fail(new Error("the server sends interim answers without end"));
  });
  stream.on("trailers", (fields: IncomingHttpHeaders) => {
    trailers = pairsOf(fields);
  });
  // Node emits the trailers that end a body shortly after its end.
  const readTrailers = () => new Promise<Header[]>((resolve) => setImmediate(() => resolve(trailers)));
  stream.once("end", () => {
    isEnded = true;
  });
  stream.once("response", (fields, flags) => {
    const headers = pairsOf(fields);
    const status = fields[":status"] ?? 0;
    const size = headers.reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0);
    if (status < 200 || status > 599 || size > MAX_ANSWER_HEADER_BYTES) {
      return fail(new Error("what the server sent is not an HTTP answer"));
    }
    const isLast = (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    const isHead = sent.method === "HEAD";
    onAnswer({ status, headers, body: stream, isLast: isLast || isHead, trailers: readTrailers });
  });
  stream.on("error", onFailure);
  stream.once("close", () => {
    if (!isEnded && stream.rstCode !== constants.NGHTTP2_NO_ERROR)
      onFailure(new Error("the answer broke off"));
    else if (!isEnded) onFailure(new Error("the server closed without an answer"));
  });
}
