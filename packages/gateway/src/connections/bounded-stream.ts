/**
 * Guards the body that an HTTP/2 stream brings. Hazard: Node ends the body of a stream that was reset like one that is whole.
 * Hazard: flow control limits the bytes that a stream holds, not the pieces: in pieces of one byte a full window takes a
 * hundred times its size of memory.
 */
import type { Http2Stream } from "node:http2";

const MAX_PIECES = 2_048;

/** Destroys a stream that is reset before its end, or that sends many tiny pieces faster than they are read. */
export function guardBody(stream: Http2Stream): void {
  let pieces = 0;
  let isWhole = stream.endAfterHeaders === true;
  // Not at once: Node still works on the stream when it pushes.
  const fail = (why: string) => {
    process.nextTick(() => stream.destroy(new Error(why)));
    return false;
  };
  const push = stream.push.bind(stream);
  stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk === null) {
      // The peer's own end comes while the stream is open; that of a reset comes after it was closed.
      isWhole ||= !stream.closed;
      return isWhole ? push(null) : fail("the stream was reset before its end");
    }
    if (stream.readableLength === 0) pieces = 0;
    pieces += 1;
    return pieces <= MAX_PIECES ? push(chunk, encoding) : fail("too many pieces wait to be read");
  };
}
