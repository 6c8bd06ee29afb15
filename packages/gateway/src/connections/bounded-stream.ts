/**
 * Bounds the pieces that an HTTP/2 stream holds. Flow control limits their bytes, not their number: in pieces of one byte
 * a full window takes a hundred times its size of memory.
 */
import type { Http2Stream } from "node:http2";

const MAX_PIECES = 2_048;

/** Resets a stream that sends many tiny pieces faster than they are read. */
export function boundPieces(stream: Http2Stream): void {
  let pieces = 0;
  const push = stream.push.bind(stream);
  stream.push = (chunk: Buffer | null, encoding?: BufferEncoding) => {
    if (chunk === null || stream.readableLength === 0) pieces = 0;
    pieces += 1;
    if (pieces > MAX_PIECES) {
      stream.destroy(new Error("too many pieces wait to be read"));
      return false;
    }
    return push(chunk, encoding);
  };
}
