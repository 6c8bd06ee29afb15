/** Cuts the pieces of a body into parts of one size; the last one has what is left, and may be empty. */
export interface BodyPart {
  bytes: Buffer;
  isLast: boolean;
}

/** A part is known to be the last one only when the pieces have ended. */
export async function* inParts(
  pieces: AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<BodyPart> {
  let kept: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of pieces) {
    let rest = piece;
    while (bytes + rest.length > partBytes) {
      const missing = partBytes - bytes;
      kept.push(rest.subarray(0, missing));
      yield { bytes: Buffer.concat(kept), isLast: false };
      rest = rest.subarray(missing);
      kept = [];
      bytes = 0;
    }
    kept.push(rest);
    bytes += rest.length;
  }
  yield { bytes: Buffer.concat(kept), isLast: true };
}
