import { isUtf8 } from "node:buffer";

/** Collects one output stream up to a cap. Bytes past the cap are dropped; the command keeps running. */
export class OutputBuffer {
  readonly #limitBytes: number;
  readonly #chunks: Buffer[] = [];
  #sizeBytes = 0;
  /** Bytes were dropped: here, or by the node or the agent before the output came. */
  isCut = false;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  push(chunk: Buffer): void {
    const left = this.#limitBytes - this.#sizeBytes;
    if (chunk.length > left) this.isCut = true;
    const kept = chunk.length > left ? chunk.subarray(0, left) : chunk;
    if (kept.length === 0) return;
    this.#chunks.push(kept);
    this.#sizeBytes += kept.length;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Text where the bytes are UTF-8, base64 otherwise. A cut never splits a character. */
  toText(): EncodedOutput {
    const bytes = Buffer.concat(this.#chunks);
    return encodeOutput(bytes, this.isCut ? withoutSplitCharacter(bytes) : bytes);
  }
}

export interface EncodedOutput {
  text: string;
  encoding?: "base64";
}

/** Text if UTF-8, else base64. `characters`: the bytes without incomplete characters at a cut start or end. */
export function encodeOutput(bytes: Buffer, characters: Buffer): EncodedOutput {
  if (isUtf8(characters)) return { text: characters.toString("utf8") };
  return { text: bytes.toString("base64"), encoding: "base64" };
}

/** Drops the first bytes of a UTF-8 character whose rest was cut off. */
export function withoutSplitCharacter(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(4, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue;
    return back < sequenceLength(byte) ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}

/** How many bytes the first byte of a character announces; 1 for a byte that cannot be one. */
function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  return lead >= 0xc2 && lead <= 0xdf ? 2 : 1;
}
