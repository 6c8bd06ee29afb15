/**
 * Closing a connection whose client may still be sending. A socket that is closed with unread bytes is reset, and the
 * reset may overtake the answer. So the answer goes out first, and then incoming bytes are read and dropped for a
 * while.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** Limits after which a closing connection is cut: `ms` of silence, `inAllMs` of time, `bytes` that the client sends. */
export const CLOSE_LIMITS = { ms: 2_000, inAllMs: 30_000, bytes: 64 * 1024 * 1024 };
export type CloseLimits = typeof CLOSE_LIMITS;

const UNREAD_BODY_MS = 2_000;
/** Checks in one period of silence: a stall of this process, in which nothing is read, counts as one check. */
const CHECKS = 4;

/** Ends a connection after the last byte that was written to it, and waits for the client to close as well. */
export function endGently(socket: Duplex, limits: CloseLimits = CLOSE_LIMITS): void {
  let bytes = 0;
  let silentChecks = 0;
  const cutOff = () => socket.destroy();
  const check = () => {
    silentChecks += 1;
    if (silentChecks === CHECKS) cutOff();
  };
  const silent = setInterval(check, limits.ms / CHECKS).unref();
  const late = setTimeout(cutOff, limits.inAllMs).unref();
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    silentChecks = 0;
    if (bytes > limits.bytes) cutOff();
    else silent.refresh();
  });
  socket.resume();
  socket.end();
  socket.once("close", () => {
    clearInterval(silent);
    clearTimeout(late);
  });
}

/** Ends a connection whose client still sends a body that no one reads any more. */
export function leaveUnread(request: IncomingMessage): void {
  const { socket } = request;
  request.removeAllListeners("data").resume();
  socket.resume();
  socket.end();
  setTimeout(() => socket.destroy(), UNREAD_BODY_MS).unref();
}
