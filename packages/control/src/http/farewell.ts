/** How a connection ends whose client may still be sending. */
import type { Duplex } from "node:stream";

/** How long a client may be silent before it is cut off, and how long and how much it may still send in all. */
export const FAREWELL = { ms: 2_000, inAllMs: 30_000, bytes: 64 * 1024 * 1024 };

/** Silence is looked for so often: a stall of this process, in which it reads nothing, counts for one look. */
const LOOKS = 4;

/**
 * Ends a connection after what was written to it. What the client sends on is read and dropped until it has closed as well:
 * closed with bytes unread, a connection is reset, and the reset overtakes the answer.
 */
export function endGently(socket: Duplex, farewell = FAREWELL): void {
  let bytes = 0;
  let silentLooks = 0;
  const cutOff = () => socket.destroy();
  const look = () => {
    silentLooks += 1;
    if (silentLooks === LOOKS) cutOff();
  };
  const silent = setInterval(look, farewell.ms / LOOKS).unref();
  const late = setTimeout(cutOff, farewell.inAllMs).unref();
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    silentLooks = 0;
    if (bytes > farewell.bytes) cutOff();
    else silent.refresh();
  });
  socket.resume();
  socket.end();
  socket.once("close", () => {
    clearInterval(silent);
    clearTimeout(late);
  });
}
