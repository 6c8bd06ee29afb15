import type { IncomingMessage } from "node:http";
import type { Writable } from "node:stream";
import type { Heed } from "./contain.ts";

/** So many are joined before their turn is over: one turn may bring megabytes, and each piece costs hundreds of bytes. */
const MOST_PIECES = 4096;

/**
 * Moves a body on as fast as it is taken, everything that came at once in one piece. A plain pipe keeps the pieces
 * apart, and streams limit their bytes but not their number: a body of one-byte chunks would cost a thousand times its
 * size. So nothing is left to the streams to keep: pieces are joined in the turn in which they come, and it is the
 * socket that waits.
 */
export function pour(from: IncomingMessage, to: Writable, heed: Heed): void {
  let pieces: Buffer[] = [];
  let isDue = false;
  const write = (): boolean => {
    if (pieces.length === 0) return true;
    const bytes = Buffer.concat(pieces);
    pieces = [];
    return to.destroyed || to.write(bytes);
  };
  const move = heed(() => {
    isDue = false;
    if (write()) return;
    from.pause();
    from.socket.pause();
  });
  const goOn = heed(() => {
    from.socket.resume();
    from.resume();
  });
  const take = (piece: Buffer) => {
    // Not in the next tick: a server's parser has one between any two pieces.
    if (pieces.push(piece) === 1 && !isDue) {
      isDue = true;
      setImmediate(move);
    }
    // Joined and not moved: to be paused in the midst of what has come would leave the rest of it to the stream.
    if (pieces.length === MOST_PIECES) pieces = [Buffer.concat(pieces)];
  };
  from.on("data", heed(take));
  to.on("drain", goOn);
  // Nothing of it is to wait any more, and its socket may be another message's by now.
  const finish = () => {
    to.off("drain", goOn);
    write();
    to.end();
  };
  from.once("end", heed(finish));
}
