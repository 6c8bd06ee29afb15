/** Requests over one HTTP/2 connection to an origin. It serves one guest's connection only. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
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
    return { body: stream, isSent: () => true, destroy: cancel };
  }

  destroy(): void {
    this.#session.destroy();
  }
}

function hear(
  stream: ClientHttp2Stream,
  { sent, cancel }: { sent: UpstreamRequest; cancel: () => void },
  { onAnswer, onFailure, guard }: Hearing,
): void {
  let trailers: Header[] = [];
  let interim = 0;
  let isEnded = false;
  const fail = (error: Error) => {
    cancel();
    onFailure(error);
  };
  const onInterim = () => {
    if (++interim > MAX_INTERIM) fail(new Error("the server sends interim answers without end"));
  };
  const onTrailers = (fields: IncomingHttpHeaders) => {
    trailers = pairsOf(fields);
  };
  // Node emits the trailers that end a body shortly after its end.
  const readTrailers = () => new Promise<Header[]>((resolve) => setImmediate(() => resolve(trailers)));
  stream.once("end", () => {
    isEnded = true;
  });
  const onResponse = (fields: IncomingHttpHeaders & IncomingHttpStatusHeader, flags: number) => {
    const headers = pairsOf(fields);
    const status = fields[":status"] ?? 0;
    const size = headers.reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0);
    if (status < 200 || status > 599 || size > MAX_ANSWER_HEADER_BYTES) {
      fail(new Error("what the server sent is not an HTTP answer"));
      return;
    }
    const isLast = sent.method === "HEAD" || (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
    onAnswer({ status, headers, body: stream, isLast, trailers: readTrailers });
  };
  const onClose = () => {
    if (!isEnded) onFailure(new Error("the answer broke off"));
  };
  stream.on("headers", guard(onInterim)).on("trailers", guard(onTrailers));
  stream.once("response", guard(onResponse));
  stream.on("error", guard(onFailure)).once("close", guard(onClose));
}
