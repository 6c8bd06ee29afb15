/**
 * Closing a connection whose client may still be sending. A socket that is closed with unread bytes is reset, and the reset
 * may overtake the answer. So the answer goes out first, and then incoming bytes are read and dropped for a while.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";

/** How long a client may be silent before its connection is cut, and how long and how much it may send in all. */
export const CLOSE_LIMITS = { ms: 2_000, inAllMs: 30_000, bytes: 64 * 1024 * 1024 };
export type CloseLimits = typeof CLOSE_LIMITS;

const UNREAD_BODY_MS = 2_000;
/** Looks for silence in one period: a stall of this process, in which nothing is read, counts for one look. */
const LOOKS = 4;

/** Ends a connection after the last byte that was written to it, and waits for the client to close as well. */
export function endGently(socket: Duplex, limits: CloseLimits = CLOSE_LIMITS): void {
  let bytes = 0;
  let silentLooks = 0;
  const cutOff = () => socket.destroy();
  const look = () => {
    silentLooks += 1;
    if (silentLooks === LOOKS) cutOff();
  };
  const silent = setInterval(look, limits.ms / LOOKS).unref();
  const late = setTimeout(cutOff, limits.inAllMs).unref();
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    silentLooks = 0;
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
