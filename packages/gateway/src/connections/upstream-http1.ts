/** Requests over HTTP/1.1 to an origin. Its connections serve one guest's connection only. */
import { Agent, type ClientRequest, type IncomingMessage, request as openRequest } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { isAnswer, lengthLast } from "@vivarium/http1/answer-head";
import { type Header, headerPairs, valuesOf } from "@vivarium/http1/headers";
import {
  type Hearing,
  MAX_ANSWER_HEADER_BYTES,
  MAX_INTERIM,
  type Sending,
  type Upstream,
  type UpstreamRequest,
} from "./upstream.ts";

/** Statuses of answers without a body. */
const NO_BODY = [204, 304];

export class Http1Upstream implements Upstream {
  readonly #agent: OriginAgent;
  readonly #requests = new Set<ClientRequest>();

  /** `first` is connected already. `connectAgain` makes further connections, for requests at the same time. */
  constructor(first: TLSSocket, connectAgain: () => Promise<TLSSocket>) {
    this.#agent = new OriginAgent(first, connectAgain);
  }

  readonly isUsable = true;

  send(sent: UpstreamRequest, { onAnswer, onFailure, guard }: Hearing): Sending {
    const request = openRequest({
      agent: this.#agent,
      method: sent.method,
      path: sent.target,
      headers: lengthLast(framed(sent)),
      maxHeaderSize: MAX_ANSWER_HEADER_BYTES,
      insecureHTTPParser: false,
    });
    // No limit: Node would silently drop headers past it. `maxHeaderSize` bounds their bytes.
    request.maxHeadersCount = 0;
    this.#requests.add(request);
    request.once("close", () => this.#requests.delete(request));
    const fail = (error: Error) => {
      request.destroy();
      onFailure(error);
    };
    let isSent = false;
    // Emitted before anything is written.
    request.once("socket", () => {
      isSent = true;
    });
    let interim = 0;
    const onInterim = () => {
      if (++interim > MAX_INTERIM) fail(new Error("the server sends interim answers without end"));
    };
    const onUpgrade = (_answer: IncomingMessage, socket: Duplex) => {
      socket.on("error", () => {}).destroy();
      fail(new Error("the server switched to a protocol that was not asked for"));
    };
    const onResponse = (answer: IncomingMessage) => {
      // Its end or its close says whether the answer was whole.
      answer.on("error", () => {});
      if (!isAnswer(answer)) {
        fail(new Error("what the server sent is not an HTTP answer"));
        return;
      }
      const onClose = () => {
        if (!answer.complete) fail(new Error("the answer broke off"));
      };
      answer.once("close", guard(onClose));
      const { statusCode: status = 502 } = answer;
      onAnswer({
        status,
        headers: headerPairs(answer.rawHeaders),
        body: answer,
        isLast: sent.method === "HEAD" || NO_BODY.includes(status),
        trailers: async () => headerPairs(answer.rawTrailers),
      });
    };
    request.on("information", guard(onInterim)).on("upgrade", guard(onUpgrade));
    request.on("response", guard(onResponse)).on("error", guard(fail));
    if (!sent.hasBody) request.end();
    return { body: request, isSent: () => isSent, destroy: () => request.destroy() };
  }

  destroy(): void {
    for (const request of this.#requests) request.destroy();
    this.#agent.destroy();
  }
}

/** States where the body ends, which HTTP/2 does not. */
function framed({ headers, hasBody, method }: UpstreamRequest): Header[] {
  const isFramed = ["content-length", "transfer-encoding"].some((name) => valuesOf(headers, name).length > 0);
  const others = headers.filter(([name]) => name.toLowerCase() !== "te");
  if (isFramed) return others;
  if (hasBody) return [...others, ["Transfer-Encoding", "chunked"]];
  return ["POST", "PUT", "PATCH"].includes(method) ? [...others, ["Content-Length", "0"]] : others;
}

class OriginAgent extends Agent {
  #first: TLSSocket | undefined;
  readonly #connectAgain: () => Promise<TLSSocket>;

  constructor(first: TLSSocket, connectAgain: () => Promise<TLSSocket>) {
    // No limit: a request that waited for a connection would carry a credential that was judged long ago.
    super({ keepAlive: true });
    this.#first = first;
    this.#connectAgain = connectAgain;
  }

  /** Returns an open socket at once: the agent counts those that are still being opened as if they did not exist. */
  override createConnection(
    _options: unknown,
    callback?: (error: Error | null, socket: Duplex) => void,
  ): Duplex | undefined {
    const first = this.#first;
    this.#first = undefined;
    if (first && !first.destroyed) return first;
    this.#connectAgain().then(
      (socket) => callback?.(null, socket),
      (error: Error) => callback?.(error, undefined as unknown as Duplex),
    );
    return undefined;
  }

  override destroy(): void {
    this.#first?.destroy();
    super.destroy();
  }
}
