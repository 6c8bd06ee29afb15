/**
 * Checks and sends the heads of answers that a proxy passes on. Node's parser accepts heads that its writer refuses
 * while it is writing them, so every head is checked before any byte of it is written.
 */
import {
  type IncomingMessage,
  type ServerResponse,
  validateHeaderName,
  validateHeaderValue,
} from "node:http";
import type { Socket } from "node:net";
import { type Header, headerPairs, valuesOf } from "./headers.ts";

type Head = Pick<IncomingMessage, "statusCode" | "httpVersionMajor" | "headers" | "rawHeaders">;

/** Whether this is a final answer that can be written anew. Some servers send 999, although no status is above 599. */
export function isAnswer({ statusCode = 0, httpVersionMajor, rawHeaders }: Head): boolean {
  if (httpVersionMajor !== 1 || statusCode < 200 || statusCode > 999) return false;
  const headers = headerPairs(rawHeaders);
  return headers.every(isHeader) && valuesOf(headers, "transfer-encoding").every(isRemovedByNode);
}

/** Whether the answer is the server's consent to a WebSocket. */
export function grantsWebSocket({ statusCode, headers, rawHeaders }: Head): boolean {
  const isConsent = statusCode === 101 && headers.upgrade?.toLowerCase() === "websocket";
  return isConsent && headerPairs(rawHeaders).every(isHeader);
}

/**
 * Sends the head at once, with the bytes of its headers unchanged. The reason phrase is the standard one of the status,
 * because a server's phrase may contain bytes that must not be sent.
 */
export function sendHead(response: ServerResponse, status: number, headers: readonly Header[]): void {
  response.writeHead(status, lengthLast(headers));
  // Node writes flushed headers as UTF-8, which makes two bytes of every byte above 0x7f.
  response.write("", "latin1");
}

export function sendConsent(client: Socket, headers: readonly Header[]): void {
  const all = [...headers, ["Connection", "Upgrade"], ["Upgrade", "websocket"]];
  const lines = all.map(([name, value]) => `${name}: ${value}\r\n`);
  client.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`, "latin1");
}

/** Moves Content-Length to the end: Node reads a Content-Disposition after it as UTF-8, and refuses or garbles it. */
export function lengthLast(headers: readonly Header[]): string[] {
  const isLength = ([name]: Header) => name.toLowerCase() === "content-length";
  return [...headers.filter((header) => !isLength(header)), ...headers.filter(isLength)].flat();
}

/** Whether Node removes this transfer coding. Any other would stay on the body while its header is removed. */
function isRemovedByNode(coding: string): boolean {
  return ["chunked", "identity"].includes(coding.trim().toLowerCase());
}

function isHeader([name, value]: Header): boolean {
  try {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    return true;
  } catch {
    return false;
  }
}
