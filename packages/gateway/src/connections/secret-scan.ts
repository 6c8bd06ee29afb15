/**
 * Searches one stream for a secret, across the borders of its chunks: in the bytes themselves, with percent escapes
 * decoded, and with JSON escapes decoded. The last bytes are held back until the next ones decide, since they may begin
 * the secret. Their number does not depend on their content. Otherwise an origin could send guesses of the secret, and
 * the lengths of what passes would show how many characters of a guess are right.
 */
import { type Escapes, JSON_ESCAPES, LONGEST_ESCAPE, MORE, NOT_ESCAPED, PERCENT } from "./escapes.ts";
import type { Needles, Reading } from "./needles.ts";

/** Most characters of a secret that may be released before the rest has come. */
const MAX_RELEASED = 8;
/** Most characters of a guess that may be shown to be right. More than the public beginnings of tokens have. */
const MAX_TOLD = 16;
const NOTHING = Buffer.alloc(0);

export interface Scanned {
  /** Bytes that may be passed on. */
  clean: Buffer;
  /** The secret follows the clean bytes. */
  isHit: boolean;
}

export class SecretScan {
  readonly #needles: Needles;
  readonly #decoded: readonly DecodedReading[];
  #state = 0;
  #held: Buffer = NOTHING;

  constructor(needles: Needles) {
    this.#needles = needles;
    this.#decoded = [PERCENT, JSON_ESCAPES].map((escapes) => new DecodedReading(needles, escapes));
  }

  /** Whether the held bytes can only be a small part of a secret, so that they may be released. */
  get mayRelease(): boolean {
    return this.#held.length > 0 && this.#depth <= Math.min(MAX_RELEASED, this.#needles.shortest / 2);
  }

  /**
   * Whether the held bytes end in a long beginning of a secret. In a silence the guest sees that they are held back, so a guess
   * that can be compared with others: it counts as the secret itself.
   */
  get isGuess(): boolean {
    return this.#depth > Math.min(MAX_TOLD, this.#needles.shortest / 2);
  }

  /** Characters of a secret with which the stream ends. */
  get #depth(): number {
    const states = [this.#state, ...this.#decoded.map(({ state }) => state)];
    return Math.max(...states.map((state) => this.#needles.depthOf(state)));
  }

  /** Bytes at the end of the stream that may begin a secret. */
  get #uncertain(): number {
    const depths = this.#decoded.map((reading) => reading.uncertain);
    return Math.max(this.#needles.depthOf(this.#state), ...depths);
  }

  read(chunk: Buffer): Scanned {
    const all = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const before = this.#state;
    const plain = this.#needles.read(before, chunk);
    this.#state = plain.state;
    const starts: number[] = [];
    const note = (at: number, length: number) => starts.push(all.length - chunk.length + at - length);
    if (plain.at !== undefined) note(plain.at, this.#needles.depthOf(plain.state));
    for (const reading of this.#decoded) {
      const at = reading.read(chunk, { before, plain });
      if (at !== undefined) note(at, reading.uncertain);
    }
    if (starts.length > 0) {
      this.#held = NOTHING;
      return { clean: all.subarray(0, Math.max(0, Math.min(...starts))), isHit: true };
    }
    const kept = Math.max(LONGEST_ESCAPE * this.#needles.longest, this.#uncertain);
    const clean = Math.max(0, all.length - kept);
    // A copy: a few held bytes would keep a whole chunk in memory.
    this.#held = clean === all.length ? NOTHING : Buffer.from(all.subarray(clean));
    return { clean: all.subarray(0, clean), isHit: false };
  }

  /** The bytes that are held back before those that may begin a secret. These are forgotten. */
  cut(): Buffer {
    const clean = this.#held.subarray(0, Math.max(0, this.#held.length - this.#uncertain));
    this.#held = NOTHING;
    return clean;
  }

  /** The bytes that were held back. The search continues: a secret that they begin is found still. */
  release(): Buffer {
    const held = this.#held;
    this.#held = NOTHING;
    return held;
  }
}

/** Whether a whole text contains the secret. */
export function hasSecret(needles: Needles, text: string): boolean {
  return new SecretScan(needles).read(Buffer.from(text, "latin1")).isHit;
}

/** The reading of a stream with one kind of escapes decoded. */
class DecodedReading {
  readonly #needles: Needles;
  readonly #escapes: Escapes;
  #state = 0;
  /** Bytes of an escape that is not complete. */
  #open: number[] = [];
  /** Decoded bytes so far. */
  #count = 0;
  /** Escapes that the current beginning of a needle may contain: the count behind each, and its further bytes. */
  #spans: { count: number; more: number }[] = [];

  constructor(needles: Needles, escapes: Escapes) {
    this.#needles = needles;
    this.#escapes = escapes;
  }

  get state(): number {
    return this.#state;
  }

  /** Bytes of the stream that the beginning of a needle, and an incomplete escape behind it, take. */
  get uncertain(): number {
    const depth = this.#needles.depthOf(this.#state);
    this.#spans = this.#spans.filter(({ count }) => count > this.#count - depth);
    return this.#spans.reduce((sum, { more }) => sum + more, depth + this.#open.length);
  }

  /** The place in the chunk behind a needle. `plain` is the undecoded reading, which is the same without escapes. */
  read(chunk: Buffer, { before, plain }: { before: number; plain: Reading }): number | undefined {
    const { opener } = this.#escapes;
    let next = chunk.indexOf(opener);
    if (next === -1 && this.#state === before && this.#open.length === 0) {
      this.#state = plain.state;
      this.#count += plain.at ?? chunk.length;
      return plain.at;
    }
    for (let at = 0; at < chunk.length; ) {
      if (this.#open.length > 0 || at === next) {
        if (this.#take(chunk[at++] as number)) return at;
        continue;
      }
      if (next !== -1 && next < at) next = chunk.indexOf(opener, at);
      if (at === next) continue;
      const end = next === -1 ? chunk.length : next;
      const { state, at: found } = this.#needles.read(this.#state, chunk, at, end);
      this.#state = state;
      this.#count += (found ?? end) - at;
      if (found !== undefined) return found;
      at = end;
    }
    return undefined;
  }

  /** Whether a needle ends with this byte. */
  #take(byte: number): boolean {
    if (this.#open.length === 0 && byte !== this.#escapes.opener) return this.#step(byte);
    this.#open.push(byte);
    const decoded = this.#escapes.decode(this.#open);
    if (decoded === MORE) return false;
    const [first = 0, ...rest] = this.#open;
    this.#open = [];
    if (decoded !== NOT_ESCAPED) {
      this.#spans.push({ count: this.#count + 1, more: rest.length });
      return this.#step(decoded);
    }
    return this.#step(first) || rest.some((other) => this.#take(other));
  }

  #step(byte: number): boolean {
    this.#count += 1;
    this.#state = this.#needles.step(this.#state, byte);
    return this.#needles.isEnd(this.#state);
  }
}
