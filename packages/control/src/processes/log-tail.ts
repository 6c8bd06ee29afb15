import { type EncodedOutput, encodeOutput, withoutSplitCharacter } from "../exec/output.ts";

/** The last bytes of one output stream, up to a cap. The oldest bytes are dropped. */
export class LogTail {
  readonly #limitBytes: number;
  #chunks: Buffer[] = [];
  #sizeBytes = 0;
  #isCut = false;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#sizeBytes += chunk.length;
    // Joined only at twice the limit, so that each byte is copied about twice, whatever the size of the chunks.
    if (this.#sizeBytes > 2 * this.#limitBytes) this.#join();
  }

  /** Records that older output was dropped before it got here. */
  markCut(): void {
    this.#isCut = true;
  }

  get isCut(): boolean {
    return this.#isCut || this.#sizeBytes > this.#limitBytes;
  }

  /** Whether the last character is incomplete. For a running process, its rest may follow. */
  get endsInsideCharacter(): boolean {
    const bytes = this.#join();
    return withoutSplitCharacter(bytes).length < bytes.length;
  }

  /** Starts at a whole character where older output was cut off. Ends at one while more output may follow. */
  toText({ isGrowing }: { isGrowing: boolean }): EncodedOutput {
    const bytes = this.#join();
    const begun = this.isCut ? withoutCharacterRest(bytes) : bytes;
    return encodeOutput(bytes, isGrowing ? withoutSplitCharacter(begun) : begun);
  }

  #join(): Buffer {
    const all = Buffer.concat(this.#chunks);
    const kept = all.subarray(Math.max(0, all.length - this.#limitBytes));
    if (kept.length < all.length) this.#isCut = true;
    this.#chunks = [kept];
    this.#sizeBytes = kept.length;
    return kept;
  }
}

/** Drops the last bytes of a character whose first bytes were cut off. */
export function withoutCharacterRest(bytes: Buffer): Buffer {
  let start = 0;
  while (start < Math.min(3, bytes.length) && ((bytes[start] as number) & 0b1100_0000) === 0b1000_0000)
    start++;
  return bytes.subarray(start);
}
