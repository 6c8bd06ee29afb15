/**
 * Finds requests that allow request smuggling: two readers that disagree about where a request ends let a second one
 * hide in its body. Node's parser refuses most of them; these checks refuse the rest.
 */
import type { IncomingMessage } from "node:http";
import { type Header, valuesOf } from "./headers.ts";

/** Why two readers could find different ends of this request; undefined when they cannot. */
export function findBadFraming(httpVersion: string, headers: readonly Header[]): string | undefined {
  const lengths = valuesOf(headers, "content-length");
  const codings = valuesOf(headers, "transfer-encoding");
  if (lengths.length > 1 || codings.length > 1) return "the request gives its length twice";
  if (lengths.length > 0 && codings.length > 0) return "the request gives its length in two ways";
  if (lengths.some((value) => !/^\d{1,15}$/.test(value))) return "Content-Length is not a number";
  if (codings.some((value) => value.toLowerCase() !== "chunked")) return "Transfer-Encoding is not chunked";
  if (codings.length > 0 && httpVersion !== "1.1") return "Transfer-Encoding needs HTTP/1.1";
  return undefined;
}

export function hasBody({ headers }: Pick<IncomingMessage, "headers">): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}

/** For Node's `shouldUpgradeCallback`: all other upgrades, such as to `h2c`, stay ordinary requests. */
export function wantsWebSocket({
  method,
  httpVersion,
  headers,
}: Pick<IncomingMessage, "method" | "httpVersion" | "headers">): boolean {
  return method === "GET" && httpVersion === "1.1" && headers.upgrade?.toLowerCase() === "websocket";
}
