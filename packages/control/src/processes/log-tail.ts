import { type EncodedOutput, encodeOutput, withoutSplitCharacter } from "../exec/output.ts";

/** The end of one output stream: of what comes past the cap, the oldest is dropped. */
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
    // Joined only now and then: each byte is copied about twice, whatever the chunks.
    if (this.#sizeBytes > 2 * this.#limitBytes) this.#join();
  }

  /** The other side says that there was more before. */
  markCut(): void {
    this.#isCut = true;
  }

  get isCut(): boolean {
    return this.#isCut || this.#sizeBytes > this.#limitBytes;
  }

  /** True when the last character is not whole: of a process that runs, the rest is still to come. */
  get endsInsideCharacter(): boolean {
    const bytes = this.#join();
    return withoutSplitCharacter(bytes).length < bytes.length;
  }

  /** Begins on a character where older output was cut off, and ends on one where more is to come. */
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

/** Drops the last bytes of a character whose beginning was cut off. */
export function withoutCharacterRest(bytes: Buffer): Buffer {
  let start = 0;
  while (start < Math.min(3, bytes.length) && ((bytes[start] as number) & 0b1100_0000) === 0b1000_0000)
    start++;
  return bytes.subarray(start);
}
