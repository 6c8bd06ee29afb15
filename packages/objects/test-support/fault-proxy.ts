/** A proxy between a client and an HTTP server of a test: it passes requests on as they are, or does harm to some. */
import { createServer, type IncomingMessage, request as requestOf, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";

export type Fault =
  /** The proxy answers, and the server never sees the request. */
  | { kind: "refused"; status: number; code: string }
  /** The connection ends before the server sees the request. */
  | { kind: "reset" }
  /** The server does what it is asked; the connection ends in place of its answer. */
  | { kind: "lost" }
  /** The answer's body ends after these bytes. `isHidden`: in a manner that looks complete. */
  | { kind: "cut"; bytes: number; isHidden?: boolean }
  /** No more of the answer's body comes after these bytes, and the connection stays open. */
  | { kind: "stalled"; bytes: number }
  /** One byte of the request's body, or of the answer's, is another one. */
  | { kind: "changed"; in: "request" | "answer" };

export class FaultProxy implements AsyncDisposable {
  /** Decides about each request. */
  faultOf: (call: string, request: IncomingMessage) => Fault | undefined = () => undefined;
  /** Methods and paths, in their order. */
  readonly calls: string[] = [];
  readonly #socketPath: string;
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  constructor(socketPath: string) {
    this.#socketPath = socketPath;
  }

  static async start(socketPath: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(socketPath);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The next request that matches meets the fault, and all others none. */
  once(pattern: RegExp, fault: Fault): void {
    let isOver = false;
    this.faultOf = (call) => {
      if (isOver || !pattern.test(call)) return undefined;
      isOver = true;
      return fault;
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = `${request.method} ${request.url}`;
    this.calls.push(call);
    const fault = this.faultOf(call, request);
    try {
      if (fault?.kind === "reset") request.socket.destroy();
      else if (fault?.kind === "refused") await refuse(request, response, fault);
      else await this.#pass(request, response, fault);
    } catch {
      // One side has left.
      request.socket.destroy();
    }
  }

  async #pass(request: IncomingMessage, response: ServerResponse, fault: Fault | undefined): Promise<void> {
    // The proxy has answered an expectation itself, and keeps connections for itself.
    const { expect: _, connection: __, ...headers } = request.headers;
    const forwarded = requestOf({
      socketPath: this.#socketPath,
      method: request.method,
      path: request.url,
      headers,
    });
    // Without a length, and without a body, Node would send an empty body in chunks.
    forwarded.useChunkedEncodingByDefault = "transfer-encoding" in headers;
    const answered = new Promise<IncomingMessage>((resolve, reject) => {
      forwarded.once("response", resolve).on("error", reject);
    });
    const changes = fault?.kind === "changed" && fault.in === "request" ? [firstByteChanged()] : [];
    // A server may answer before it has all of the request.
    const sent = pipeline([request, ...changes, forwarded]).catch(() => undefined);
    const answer = await answered;
    await passAnswer(answer, response, fault);
    await sent;
  }
}

async function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  { status, code }: { status: number; code: string },
): Promise<void> {
  for await (const _ of request);
  response.writeHead(status, { "content-type": "application/xml" });
  response.end(
    `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>No.</Message></Error>`,
  );
}

async function passAnswer(
  answer: IncomingMessage,
  response: ServerResponse,
  fault: Fault | undefined,
): Promise<void> {
  const status = answer.statusCode ?? 0;
  const { connection: _, "keep-alive": __, ...headers } = answer.headers;
  if (fault?.kind === "lost") {
    for await (const _ of answer);
    response.destroy();
  } else if (fault?.kind === "cut" || fault?.kind === "stalled") {
    const bytes = Buffer.concat(await Array.fromAsync(answer)).subarray(0, fault.bytes);
    const isHidden = fault.kind === "cut" && fault.isHidden;
    if (isHidden) delete headers["transfer-encoding"];
    response.writeHead(status, isHidden ? { ...headers, "content-length": bytes.length } : headers);
    if (isHidden) response.end(bytes);
    else response.write(bytes, () => fault.kind === "cut" && response.destroy());
  } else {
    response.writeHead(status, headers);
    await pipeline([answer, ...(fault?.kind === "changed" ? [firstByteChanged()] : []), response]);
  }
}

function firstByteChanged(): Transform {
  let isFirst = true;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const changed = Buffer.from(chunk);
      if (isFirst && changed.length > 0) changed[0] = (changed[0] ?? 0) ^ 1;
      isFirst = false;
      done(null, changed);
    },
  });
}
