/**
 * Finds any of several byte strings (the needles) in one pass over a stream: the automaton of Aho and Corasick. A state is
 * the longest beginning of a needle with which the bytes read so far end. Takes linear time whatever the bytes are, and six
 * bytes of memory for each byte of a needle: a needle is a chain of states, each with the number behind that of the one
 * before, so that only the few states where needles part have a list of those that follow.
 */

const NONE = 0;
/** Marks of a state. */
const IS_END = 1;
const BEGINS_CHAIN = 2;
const PARTS = 4;

export interface Reading {
  state: number;
  at: number | undefined;
}

export class Needles {
  /** Next state from the start, by byte: nearly all steps of an ordinary stream. */
  readonly #root = new Uint32Array(256);
  /** The last byte of each state. State 0 is the start. */
  readonly #byte: Uint8Array;
  readonly #flags: Uint8Array;
  /** The next shorter state that these bytes are in as well. */
  readonly #shorter: Uint16Array | Uint32Array;
  /** The states, beside the next one, that follow where needles part. */
  readonly #parting = new Map<number, number[]>();
  /** First states of the chains, with their depths. In their order. */
  readonly #chains: { first: number; depth: number }[] = [];
  #count = 1;
  /** Lengths of the shortest and of the longest needle. */
  readonly shortest: number;
  readonly longest: number;

  constructor(needles: readonly Uint8Array[]) {
    this.shortest = Math.min(...needles.map(({ length }) => length));
    this.longest = Math.max(0, ...needles.map(({ length }) => length));
    const most = needles.reduce((sum, { length }) => sum + length, 1);
    this.#byte = new Uint8Array(most);
    this.#flags = new Uint8Array(most);
    this.#shorter = most <= 2 ** 16 ? new Uint16Array(most) : new Uint32Array(most);
    for (const needle of needles) if (needle.length > 0) this.#add(needle);
    this.#link();
  }

  /** Memory of the tables. */
  get bytes(): number {
    const tables = [this.#root, this.#byte, this.#flags, this.#shorter];
    return tables.reduce((sum, { byteLength }) => sum + byteLength, 0);
  }

  /** How many of the last bytes read are the beginning of a needle, or a whole one. */
  depthOf(state: number): number {
    const chain = this.#chains.findLast(({ first }) => first <= state);
    return chain ? chain.depth + state - chain.first : 0;
  }

  /** Whether the last bytes read are a needle. */
  isEnd(state: number): boolean {
    return ((this.#flags[state] as number) & IS_END) !== 0;
  }

  step(from: number, byte: number): number {
    let state = from;
    while (state !== NONE) {
      const next = this.#childOf(state, byte);
      if (next !== NONE) return next;
      state = this.#shorter[state] as number;
    }
    return this.#root[byte] as number;
  }

  /** Reads the bytes from `start` to `end`. `at` is the place behind the first needle, where the reading stops. */
  read(from: number, bytes: Uint8Array, start = 0, end = bytes.length): Reading {
    const root = this.#root;
    let state = from;
    for (let at = start; at < end; at++) {
      const byte = bytes[at] as number;
      state = state === NONE ? (root[byte] as number) : this.step(state, byte);
      if (state !== NONE && this.isEnd(state)) return { state, at: at + 1 };
    }
    return { state, at: undefined };
  }

  /** Overwrites the needles. Afterwards nothing is found any more. */
  forget(): void {
    for (const table of [this.#root, this.#byte, this.#flags]) table.fill(0);
    this.#parting.clear();
  }

  #add(needle: Uint8Array): void {
    let state = NONE;
    let depth = 0;
    for (const byte of needle) {
      depth += 1;
      const known = state === NONE ? (this.#root[byte] as number) : this.#childOf(state, byte);
      state = known === NONE ? this.#addChild(state, byte, depth) : known;
    }
    this.#mark(state, IS_END);
  }

  #addChild(parent: number, byte: number, depth: number): number {
    const added = this.#count++;
    this.#byte[added] = byte;
    // The one before was added for the same needle.
    if (parent !== NONE && parent === added - 1) return added;
    this.#mark(added, BEGINS_CHAIN);
    this.#chains.push({ first: added, depth });
    if (parent === NONE) this.#root[byte] = added;
    else {
      this.#mark(parent, PARTS);
      this.#parting.set(parent, [...(this.#parting.get(parent) ?? []), added]);
    }
    return added;
  }

  #mark(state: number, flag: number): void {
    this.#flags[state] = (this.#flags[state] as number) | flag;
  }

  #childOf(state: number, byte: number): number {
    const next = state + 1;
    if (this.#byte[next] === byte && this.#follows(next)) return next;
    if (((this.#flags[state] as number) & PARTS) === 0) return NONE;
    return this.#parting.get(state)?.find((child) => this.#byte[child] === byte) ?? NONE;
  }

  /** Whether the state is in the chain of the one before. */
  #follows(state: number): boolean {
    return state < this.#count && ((this.#flags[state] as number) & BEGINS_CHAIN) === 0;
  }

  #childrenOf(state: number): number[] {
    const next = this.#follows(state + 1) ? [state + 1] : [];
    return [...next, ...(this.#parting.get(state) ?? [])];
  }

  /** Computes the shorter states, level by level: those of one level need the levels before. */
  #link(): void {
    let level = [...this.#root].filter((state) => state !== NONE);
    while (level.length > 0) {
      const next: number[] = [];
      for (const state of level) {
        for (const child of this.#childrenOf(state)) {
          const shorter = this.step(this.#shorter[state] as number, this.#byte[child] as number);
          this.#shorter[child] = shorter;
          if (this.isEnd(shorter)) this.#mark(child, IS_END);
          next.push(child);
        }
      }
      level = next;
    }
  }
}
