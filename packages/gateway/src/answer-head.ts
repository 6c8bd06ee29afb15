/**
 * Heads of answers on their way through, of guests to visitors and of servers to guests. Node's parser takes what its
 * writer refuses, in the midst of writing; so an answer is looked at first, and one that is none is not begun with.
 */
import {
  type IncomingMessage,
  type ServerResponse,
  validateHeaderName,
  validateHeaderValue,
} from "node:http";
import { headerPairs } from "./header-pairs.ts";

type Head = Pick<IncomingMessage, "statusCode" | "httpVersionMajor" | "headers" | "rawHeaders">;

/** A final answer. Past 599 nothing is defined, but there are servers that say 999. */
export function isAnswer({ statusCode = 0, httpVersionMajor, rawHeaders }: Head): boolean {
  if (httpVersionMajor !== 1 || statusCode < 200 || statusCode > 999) return false;
  return headerPairs(rawHeaders).every(isHeader) && !hasForeignCoding(rawHeaders);
}

/** The consent to a WebSocket. */
export function grantsWebSocket({ statusCode, headers, rawHeaders }: Head): boolean {
  const isConsent = statusCode === 101 && headers.upgrade?.toLowerCase() === "websocket";
  return isConsent && headerPairs(rawHeaders).every(isHeader);
}

/**
 * Sends it at once, every byte of a header as it came. Its phrase is the one of its status: nobody reads another, and
 * those that come have bytes that nobody may send.
 */
export function sendHead(response: ServerResponse, status: number, headers: readonly string[]): void {
  response.writeHead(status, lengthLast(headers));
  // Headers that are flushed go as UTF-8: what is above 0x7f would be two bytes.
  response.write("", "latin1");
}

/** For Node to write: a Content-Disposition behind a Content-Length it would read as UTF-8, and refuse or garble. */
export function lengthLast(headers: readonly string[]): string[] {
  const pairs = headerPairs(headers);
  const isLength = ([name]: [string, string]) => name.toLowerCase() === "content-length";
  return [...pairs.filter((pair) => !isLength(pair)), ...pairs.filter(isLength)].flat();
}

/** Chunks are taken off, and what is named identity was never coded. Any other would go on without its name. */
function hasForeignCoding(rawHeaders: readonly string[]): boolean {
  return headerPairs(rawHeaders).some(
    ([name, value]) =>
      name.toLowerCase() === "transfer-encoding" &&
      !["chunked", "identity"].includes(value.trim().toLowerCase()),
  );
}

function isHeader([name, value]: [string, string]): boolean {
  try {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    return true;
  } catch {
    return false;
  }
}
