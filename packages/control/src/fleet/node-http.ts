/** Makes one HTTP/1.1 exchange with a node over its unix socket, and turns every failure into a NodeError. */
import { type Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { isNodeErrorCode, STATE_KEY_HEADER } from "@vivarium/contract/node";
import { readAtMost } from "@vivarium/kit/read-at-most";
import { NodeError } from "./node-error.ts";

const ANSWER_LIMIT_BYTES = 16 * 1024 * 1024;
const NOT_CONNECTED = new Set(["ECONNREFUSED", "ENOENT", "EACCES", "EPERM", "ENOTSOCK"]);
/** Error of a write after the node closed the connection, so the node never had the whole request. */
const NOT_SENT = "EPIPE";

export interface Exchange {
  socketPath: string;
  method: "GET" | "PUT" | "POST" | "DELETE";
  path: string;
  /** An object is sent as JSON, bytes as they are. */
  body?: object | Buffer;
  /** A stream as the body. If it breaks off, the call breaks off. */
  source?: Readable;
  signal?: AbortSignal;
  /** Sent as a header. A node keeps bodies, and not this. */
  stateKey?: Buffer;
  /** Keeps connections alive. Without an agent, the connection is used for this call only. */
  agent?: Agent;
}

/** Resolves with the answer once its headers are here and its status is 2xx. */
export async function exchange(call: Exchange): Promise<IncomingMessage> {
  const response = await send(call);
  const status = response.statusCode ?? 0;
  if (status < 200 || status >= 300) throw await refusal(response, status);
  if (!call.source || call.source.readableEnded) return response;
  response.destroy();
  throw new NodeError("broken", "the node took part of the body for the whole");
}

/** Resolves with the whole JSON answer. */
export async function exchangeJson(call: Exchange): Promise<unknown> {
  return await readJson(await exchange(call), ANSWER_LIMIT_BYTES);
}

export async function readJson(response: IncomingMessage, limitBytes: number): Promise<unknown> {
  const text = (await readAll(response, limitBytes)).toString("utf8");
  if (response.statusCode === 204) return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new NodeError("garbled", "the node's answer is not JSON", { cause });
  }
}

function send(call: Exchange): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    if (call.signal?.aborted)
      return reject(new NodeError("aborted", "the call was given up before it was made"));
    const isBytes = Buffer.isBuffer(call.body);
    const payload =
      call.body === undefined ? undefined : isBytes ? (call.body as Buffer) : JSON.stringify(call.body);
    const request = httpRequest({
      socketPath: call.socketPath,
      method: call.method,
      path: call.path,
      agent: call.agent ?? false,
      headers: {
        host: "node",
        ...(call.stateKey && { [STATE_KEY_HEADER]: call.stateKey.toString("base64url") }),
        ...(payload !== undefined && {
          "content-type": isBytes ? "application/octet-stream" : "application/json",
          "content-length": Buffer.byteLength(payload),
        }),
        // With `connection: close`, a node that refuses the body closes the connection in the middle of it, and its
        // answer may be lost. So this side closes the connection.
        ...(call.source && { "content-type": "application/octet-stream", connection: "keep-alive" }),
      },
    });
    const abort = () => request.destroy(new NodeError("aborted", "the call was given up"));
    call.signal?.addEventListener("abort", abort, { once: true });
    // The request closes when its answer has ended or its socket is gone. After that there is nothing to abort.
    request.once("close", () => call.signal?.removeEventListener("abort", abort));
    request.once("response", resolve);
    request.on("error", (cause) => reject(sendFailure(request, cause)));
    if (call.source) sendSource(request, call.source);
    else request.end(payload);
  });
}

/** Sends only as fast as the node reads. An answer before the end is a refusal: the rest is not sent. */
function sendSource(request: ClientRequest, source: Readable): void {
  request.once("response", (response) => {
    if (!request.writableEnded) source.destroy();
    response.once("end", () => request.destroy());
  });
  request.once("close", () => source.destroy());
  source.once("error", (cause) => request.destroy(new NodeError("aborted", "the body broke off", { cause })));
  source.pipe(request);
}

export function sendFailure(request: ClientRequest, cause: NodeJS.ErrnoException): NodeError {
  if (cause instanceof NodeError) return cause;
  if (cause.code && NOT_CONNECTED.has(cause.code))
    return new NodeError("unreachable", "the node does not answer", { cause });
  if (request.reusedSocket && cause.code === NOT_SENT)
    return new NodeError("unreachable", "the node had closed the connection that was kept", { cause });
  return new NodeError("broken", "the node broke the connection", { cause });
}

export async function refusal(response: IncomingMessage, status: number): Promise<NodeError> {
  const text = (await readAll(response, ANSWER_LIMIT_BYTES)).toString("utf8");
  try {
    const { code, message } = JSON.parse(text) as { code?: unknown; message?: unknown };
    if (typeof code === "string" && isNodeErrorCode(code)) {
      const failure = code === "outcome_unknown" ? "broken" : "refused";
      return new NodeError(failure, typeof message === "string" ? message : code, { code });
    }
  } catch {
    // Not JSON. The error below says so.
  }
  return new NodeError("garbled", `the node answered ${status} without a code of the contract`);
}

export async function readAll(response: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const all = await readAtMost(response, limitBytes).catch((cause: unknown) => {
    throw new NodeError("broken", "the node broke off its answer", { cause });
  });
  if (all === undefined) throw new NodeError("garbled", "the node's answer is over its limit");
  return all;
}
