/**
 * The first message of each side of an upgraded connection: 4 bytes length (big-endian) and that many bytes of JSON.
 * Bytes after it belong to the stream.
 */
const LENGTH_BYTES = 4;
/** Most bytes of an opening's JSON: more than a TerminalSpec with the largest environment and argument list needs. */
export const OPENING_LIMIT_BYTES = 1024 * 1024;

export function encodeOpening(value: object): Buffer {
  const body = Buffer.from(JSON.stringify(value));
  if (body.length > OPENING_LIMIT_BYTES) throw new OpeningError(`opening of ${body.length} bytes`);
  const out = Buffer.allocUnsafe(LENGTH_BYTES + body.length);
  out.writeUInt32BE(body.length);
  body.copy(out, LENGTH_BYTES);
  return out;
}

/** Reads one opening from chunks of any size. */
export class OpeningReader {
  #pending: Buffer = Buffer.alloc(0);

  /** Returns the opening and the bytes after it, once it is whole. Throws OpeningError if the bytes are not one. */
  push(chunk: Buffer): { value: unknown; rest: Buffer } | undefined {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    if (this.#pending.length < LENGTH_BYTES) return undefined;
    const end = LENGTH_BYTES + this.#pending.readUInt32BE();
    if (end > LENGTH_BYTES + OPENING_LIMIT_BYTES) throw new OpeningError("the opening is over its limit");
    if (this.#pending.length < end) return undefined;
    return {
      value: parse(this.#pending.subarray(LENGTH_BYTES, end)),
      rest: this.#pending.subarray(end),
    };
  }
}

export class OpeningError extends Error {}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (cause) {
    throw new OpeningError("the opening is not JSON", { cause });
  }
}
