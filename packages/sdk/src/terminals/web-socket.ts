/** Opens WebSockets to the service: sends the API key, turns refusals into errors, and ends silent connections. */
import type { IncomingMessage } from "node:http";
import { LIMITS } from "@vivarium/contract/api/limits";
import { WebSocket } from "ws";
import { errorFromNetwork, errorFromResponse, VivariumError } from "../errors.ts";
import { retryDelayMs } from "../retry.ts";
import { buildUrl, type Call, type Transport } from "../transport.ts";

type Opening = Pick<Call, "path" | "query" | "signal">;

export const NORMAL_CLOSE = 1000;
/** Largest payload of one message. The service accepts larger ones, but they gain nothing. */
const MESSAGE_BYTES = 64 * 1024;

/**
 * Resolves to an open WebSocket that is paused, so that nothing is lost before a listener is attached. It is opened
 * again after a refusal with Retry-After, which has started nothing. The signal ends the WebSocket at any time of its
 * life.
 */
export async function openWebSocket(transport: Transport, opening: Opening): Promise<WebSocket> {
  for (let attempt = 0; ; attempt++) {
    opening.signal?.throwIfAborted();
    const outcome = await openOnce(transport, opening);
    if (!(outcome instanceof VivariumError)) return outcome;
    const delayMs =
      attempt < transport.retries ? retryDelayMs(outcome, { repeatable: false }, attempt) : undefined;
    if (delayMs === undefined) throw outcome;
    await transport.sleep(delayMs, opening.signal);
  }
}

/** Sends bytes in order; resolves when the connection has taken them. */
export function sendAll(webSocket: WebSocket, bytes: Uint8Array, frameType?: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let waiting = Math.max(1, Math.ceil(bytes.byteLength / MESSAGE_BYTES));
    const taken = (error?: Error | null) => {
      if (error) reject(disconnected("the connection has ended", error));
      else if (--waiting === 0) resolve();
    };
    for (let at = 0; at === 0 || at < bytes.byteLength; at += MESSAGE_BYTES) {
      const piece = bytes.subarray(at, at + MESSAGE_BYTES);
      const message = frameType === undefined ? piece : Buffer.concat([Uint8Array.of(frameType), piece]);
      webSocket.send(message, { binary: true }, taken);
    }
  });
}

export function disconnected(message: string, cause?: unknown): VivariumError {
  return new VivariumError("disconnected", message, { cause });
}

/** The error for a WebSocket that this client has not closed itself. A lost connection (1006) is retryable. */
export function closedBy(code: number, reason: Buffer): VivariumError {
  if (code === 1006) return new VivariumError("disconnected", "the connection was lost", { retryable: true });
  const said = reason.toString() || (code === 1001 ? "the session was paused or destroyed" : `code ${code}`);
  return disconnected(`the service ended the connection: ${said}`);
}

function openOnce(
  transport: Transport,
  { path, query, signal }: Opening,
): Promise<WebSocket | VivariumError> {
  const url = buildUrl(transport.url, { path, query }).replace(/^http/, "ws");
  const headers = transport.apiKey === undefined ? {} : { authorization: `Bearer ${transport.apiKey}` };
  const maxPayload = LIMITS.webSocketMessageBytes;
  const webSocket = new WebSocket(url, { headers, maxPayload, perMessageDeflate: false });
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal?.reason);
      webSocket.terminate();
    };
    signal?.addEventListener("abort", abort, { once: true });
    webSocket.once("close", () => signal?.removeEventListener("abort", abort));
    webSocket.once("unexpected-response", (_request, response) => {
      signal?.removeEventListener("abort", abort);
      // A kept-alive connection would keep the program from ending.
      const { socket } = response;
      resolve(readRefusal(response).finally(() => socket.destroy()));
    });
    webSocket.on("error", (cause) => resolve(errorFromNetwork(cause, transport.url)));
    webSocket.once("open", () => {
      webSocket.pause();
      endSilence(webSocket);
      resolve(webSocket);
    });
  });
}

async function readRefusal(message: IncomingMessage): Promise<VivariumError> {
  const chunks: Uint8Array[] = [];
  try {
    for await (const chunk of message) chunks.push(chunk);
  } catch {
    // The part of the answer that arrived before the connection broke is used.
  }
  const headers = new Headers();
  for (const [name, value] of Object.entries(message.headers)) headers.append(name, String(value));
  const text = async () => new TextDecoder().decode(Buffer.concat(chunks));
  return await errorFromResponse({ status: message.statusCode ?? 500, headers, text });
}

/** Ends a silent connection, since the service pings. A paused connection reads no pings, so it is never ended. */
function endSilence(webSocket: WebSocket): void {
  const timer = setTimeout(() => {
    if (webSocket.isPaused) timer.refresh();
    else webSocket.terminate();
  }, LIMITS.webSocketSilenceMs);
  for (const event of ["message", "ping", "pong"]) webSocket.on(event, () => timer.refresh());
  webSocket.once("close", () => clearTimeout(timer));
}
