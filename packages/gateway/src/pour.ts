import type { IncomingMessage } from "node:http";
import type { Writable } from "node:stream";

/**
 * Moves a body on as fast as it is taken, everything that came at once in one piece. A plain pipe keeps the pieces
 * apart, and streams limit their bytes but not their number: a body of one-byte chunks would cost a thousand times its
 * size. So nothing is left to the streams to keep: pieces are joined in the turn in which they come, and it is the
 * socket that waits.
 */
export function pour(from: IncomingMessage, to: Writable): void {
  let pieces: Buffer[] = [];
  const move = () => {
    if (pieces.length === 0) return;
    const bytes = Buffer.concat(pieces);
    pieces = [];
    if (to.destroyed || to.write(bytes)) return;
    from.pause();
    from.socket.pause();
  };
  from.on("data", (piece: Buffer) => {
    if (pieces.push(piece) === 1) process.nextTick(move);
  });
  to.on("drain", () => {
    from.socket.resume();
    from.resume();
  });
  from.once("end", () => {
    move();
    to.end();
  });
}
