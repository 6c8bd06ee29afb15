import type { IncomingMessage } from "node:http";
import type { Writable } from "node:stream";

/** So many are joined before their turn is over: one turn may bring megabytes, and each piece costs hundreds of bytes. */
const MOST_PIECES = 4096;

/**
 * Moves a body on as fast as it is taken, everything that came at once in one piece. A plain pipe keeps the pieces
 * apart, and streams limit their bytes but not their number: a body of one-byte chunks would cost a thousand times its
 * size. So nothing is left to the streams to keep: pieces are joined in the turn in which they come, and it is the
 * socket that waits.
 */
export function pour(from: IncomingMessage, to: Writable): void {
  let pieces: Buffer[] = [];
  let isDue = false;
  const move = () => {
    isDue = false;
    if (pieces.length === 0) return;
    const bytes = Buffer.concat(pieces);
    pieces = [];
    if (to.destroyed || to.write(bytes)) return;
    from.pause();
    from.socket.pause();
  };
  from.on("data", (piece: Buffer) => {
    // Not in the next tick: a server's parser has one between any two pieces.
    if (pieces.push(piece) === 1 && !isDue) {
      isDue = true;
      setImmediate(move);
    }
    // Joined and not moved: to be paused in the midst of what has come would leave the rest of it to the stream.
    if (pieces.length === MOST_PIECES) pieces = [Buffer.concat(pieces)];
  });
  to.on("drain", () => {
    from.socket.resume();
    from.resume();
  });
  // What came before a break goes on before it.
  from.prependOnceListener("error", move);
  from.once("end", () => {
    move();
    to.end();
  });
}
