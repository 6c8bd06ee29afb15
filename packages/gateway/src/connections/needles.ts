/**
 * Finds any of several byte strings (the needles) in one pass over a stream: the automaton of Aho and Corasick. A state is
 * the longest beginning of a needle with which the bytes read so far end. Takes linear time whatever the bytes are.
 */

const NONE = 0;

export interface Reading {
  state: number;
  at: number | undefined;
}

export class Needles {
  /** Next state from the start, by byte: nearly all steps of an ordinary stream. */
  readonly #root = new Uint32Array(256);
  /** The tree of needles, by state. State 0 is the start. */
  readonly #byte: Uint8Array;
  readonly #child: Uint32Array;
  readonly #sibling: Uint32Array;
  /** The next shorter state that these bytes are in as well. */
  readonly #shorter: Uint32Array;
  readonly #depth: Uint16Array;
  readonly #isEnd: Uint8Array;
  #count = 1;
  /** Length of the shortest needle. */
  readonly shortest: number;

  constructor(needles: readonly Uint8Array[]) {
    this.shortest = Math.min(...needles.map(({ length }) => length));
    const most = needles.reduce((sum, { length }) => sum + length, 1);
    this.#byte = new Uint8Array(most);
    this.#child = new Uint32Array(most);
    this.#sibling = new Uint32Array(most);
    this.#shorter = new Uint32Array(most);
    this.#depth = new Uint16Array(most);
    this.#isEnd = new Uint8Array(most);
    for (const needle of needles) if (needle.length > 0) this.#add(needle);
    this.#link();
  }

  /** How many of the last bytes read are the beginning of a needle, or a whole one. */
  depthOf(state: number): number {
    return this.#depth[state] as number;
  }

  /** Whether the last bytes read are a needle. */
  isEnd(state: number): boolean {
    return this.#isEnd[state] === 1;
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
    const isEnd = this.#isEnd;
    let state = from;
    for (let at = start; at < end; at++) {
      const byte = bytes[at] as number;
      state = state === NONE ? (root[byte] as number) : this.step(state, byte);
      if (state !== NONE && isEnd[state] === 1) return { state, at: at + 1 };
    }
    return { state, at: undefined };
  }

  /** Overwrites the needles. Afterwards nothing is found any more. */
  forget(): void {
    for (const table of [this.#root, this.#byte, this.#child, this.#sibling, this.#isEnd]) table.fill(0);
  }

  #add(needle: Uint8Array): void {
    let state = NONE;
    for (const byte of needle) {
      const known = state === NONE ? (this.#root[byte] as number) : this.#childOf(state, byte);
      state = known === NONE ? this.#addChild(state, byte) : known;
    }
    this.#isEnd[state] = 1;
  }

  #addChild(parent: number, byte: number): number {
    const added = this.#count++;
    this.#byte[added] = byte;
    this.#depth[added] = this.depthOf(parent) + 1;
    if (parent === NONE) this.#root[byte] = added;
    else {
      this.#sibling[added] = this.#child[parent] as number;
      this.#child[parent] = added;
    }
    return added;
  }

  #childOf(state: number, byte: number): number {
    let child = this.#child[state] as number;
    while (child !== NONE && this.#byte[child] !== byte) child = this.#sibling[child] as number;
    return child;
  }

  /** Computes the shorter states, level by level: those of one level need the levels before. */
  #link(): void {
    const queue = [...this.#root].filter((state) => state !== NONE);
    for (const state of queue) {
      for (let child = this.#child[state] as number; child !== NONE; child = this.#sibling[child] as number) {
        const shorter = this.step(this.#shorter[state] as number, this.#byte[child] as number);
        this.#shorter[child] = shorter;
        if (this.#isEnd[shorter] === 1) this.#isEnd[child] = 1;
        queue.push(child);
      }
    }
  }
}
