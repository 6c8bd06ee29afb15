/**
 * `longFetch`, a `fetch` over `node:http` without a time limit. Node's `fetch` gives up when no header arrives for five
 * minutes, but a command without streaming may take an hour. Used as `new Client({ fetch: longFetch })`.
 */
import { lookup } from "node:dns";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { LookupFunction } from "node:net";
import { pipeline, Readable } from "node:stream";
import type { ReadableStream as WebStream } from "node:stream/web";
import type { Fetch } from "./transport.ts";

const BODILESS_STATUSES = [204, 205, 304];

export const longFetch: Fetch = (url, init) =>
  new Promise((resolve, reject) => {
    const send = url.startsWith("https:") ? httpsRequest : httpRequest;
    const { method, headers, signal } = init;
    const request = send(url, { method, headers, signal, lookup: lookupName });
    request.on("error", reject);
    request.on("response", (message) => {
      try {
        resolve(toResponse(message));
      } catch (cause) {
        // `Response` throws for a status outside 200 to 599.
        message.destroy();
        reject(cause);
      }
    });
    const { body } = init;
    if (body === undefined || typeof body === "string") request.end(body);
    else sendBody(request, body);
  });

/** Resolves names below `localhost` to this machine (RFC 6761); not every system's resolver does. */
const lookupName: LookupFunction = (name, options, done) =>
  lookup(name.endsWith(".localhost") ? "localhost" : name, options, done);

/** Sends the body with back-pressure. A source that fails aborts the request. */
function sendBody(
  request: ClientRequest,
  body: Exclude<Parameters<Fetch>[1]["body"], string | undefined>,
): void {
  if (body instanceof Uint8Array) return void request.end(body);
  if (body instanceof Blob) request.setHeader("content-length", body.size);
  const stream = body instanceof Blob ? body.stream() : body;
  pipeline(Readable.fromWeb(stream as WebStream<Uint8Array>), request, (error) => {
    if (error) request.destroy(error);
  });
}

function toResponse(message: IncomingMessage): Response {
  const status = message.statusCode ?? 500;
  const headers = new Headers();
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  if (BODILESS_STATUSES.includes(status)) {
    message.resume();
    return new Response(null, { status, headers });
  }
  return new Response(Readable.toWeb(message) as ReadableStream<Uint8Array>, { status, headers });
}
