/** Copies a body with back-pressure, and joins the many small pieces that a client may send. */
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import type { Guard } from "./guard.ts";

/** Most separate pieces: a turn of the event loop may bring megabytes, and each piece costs hundreds of bytes. */
const MAX_PIECES = 4096;

/** A body with the connection that brings it alone; without one the body's own pause stops the sender. */
export type Body = Readable & { socket?: Pick<Socket, "pause" | "resume"> };

/**
 * Copies a body as fast as it is taken, and writes everything that came in one turn of the event loop as one piece.
 * Streams limit their bytes but not their number of pieces: through a plain pipe a body of one-byte chunks costs a
 * thousand times its size. So no piece is left in a stream's buffer, and back-pressure pauses the socket.
 */
export function copyBody(from: Body, to: Writable, guard: Guard): void {
  let pieces: Buffer[] = [];
  let isScheduled = false;
  const write = (): boolean => {
    if (pieces.length === 0) return true;
    const bytes = Buffer.concat(pieces);
    pieces = [];
    return to.destroyed || to.write(bytes);
  };
  const flush = guard(() => {
    isScheduled = false;
    if (write()) return;
    from.pause();
    from.socket?.pause();
  });
  const resume = guard(() => {
    from.socket?.resume();
    from.resume();
  });
  const take = (piece: Buffer) => {
    // Not `nextTick`: a server's parser has a tick between any two pieces.
    if (pieces.push(piece) === 1 && !isScheduled) {
      isScheduled = true;
      setImmediate(flush);
    }
    // Joined but not written: a pause in the middle of a turn would leave the rest of its pieces to the stream.
    if (pieces.length === MAX_PIECES) pieces = [Buffer.concat(pieces)];
  };
  from.on("data", guard(take));
  to.on("drain", resume);
  const finish = () => {
    // A later `drain` would resume a socket that may be reading another message by then.
    to.off("drain", resume);
    write();
    to.end();
  };
  from.once("end", guard(finish));
}
