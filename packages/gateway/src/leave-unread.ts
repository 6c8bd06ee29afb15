import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

const LINGER_MS = 2_000;

/** Whoever still sends a body that nobody takes any more gets a moment to read the answer, and then the end. */
export function leaveUnread(request: IncomingMessage, sender: Socket): void {
  request.removeAllListeners("data").resume();
  request.socket.resume();
  sender.end();
  setTimeout(() => sender.destroy(), LINGER_MS).unref();
}
