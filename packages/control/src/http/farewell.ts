/** How a connection ends whose client may still be sending. */
import type { Duplex } from "node:stream";

/** How long a client may still read its answer, and how much it may still send meanwhile. */
export const FAREWELL = { ms: 2_000, bytes: 64 * 1024 * 1024 };

/**
 * Ends a connection after what was written to it. What the client sends on is read and dropped until it has closed as well:
 * closed with bytes unread, a connection is reset, and the reset overtakes the answer.
 */
export function endGently(socket: Duplex, farewell = FAREWELL): void {
  let bytes = 0;
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > farewell.bytes) socket.destroy();
  });
  socket.resume();
  socket.end();
  const late = setTimeout(() => socket.destroy(), farewell.ms).unref();
  socket.once("close", () => clearTimeout(late));
}
