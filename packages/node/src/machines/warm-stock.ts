/** What waits for whoever asks, by what it was made of, and which of it is wanted least. */

interface Shelf<M> {
  ready: M[];
  wantedAt: number;
}

export class WarmStock<M> {
  readonly shelves = new Map<string, Shelf<M>>();
  readonly #end: (machine: M) => Promise<void>;
  /** Machines that are away from their shelf for a moment. */
  readonly #borrowed = new Set<Promise<unknown>>();
  #givingUp: Promise<boolean> | undefined;

  constructor(end: (machine: M) => Promise<void>) {
    this.#end = end;
  }

  want(key: string): Shelf<M> {
    const shelf = this.shelves.get(key) ?? { ready: [], wantedAt: 0 };
    this.shelves.set(key, shelf);
    shelf.wantedAt = Date.now();
    return shelf;
  }

  /** Nobody else gets it meanwhile; `use` tells whether it is still worth having. */
  async borrow(shelf: Shelf<M>, machine: M, use: (machine: M) => Promise<boolean>): Promise<void> {
    const at = shelf.ready.indexOf(machine);
    if (at < 0) return;
    shelf.ready.splice(at, 1);
    const done = use(machine).then(async (isGood) => {
      if (isGood) shelf.ready.push(machine);
      else await this.#end(machine);
    });
    this.#borrowed.add(done);
    await done.finally(() => this.#borrowed.delete(done));
  }

  /** Ends the one that is wanted least; false when none is left. Whoever asks meanwhile waits for the same one. */
  giveUpOne(): Promise<boolean> {
    this.#givingUp ??= this.#giveUpOne().finally(() => {
      this.#givingUp = undefined;
    });
    return this.#givingUp;
  }

  async #giveUpOne(): Promise<boolean> {
    const filled = [...this.shelves.values()].filter(({ ready }) => ready.length > 0);
    const [least] = filled.toSorted((a, b) => a.wantedAt - b.wantedAt);
    const machine = least?.ready.pop();
    if (machine !== undefined) await this.#end(machine);
    else if (this.#borrowed.size > 0) await Promise.allSettled(this.#borrowed);
    else return false;
    return true;
  }

  async endAll(): Promise<void> {
    const all = [...this.shelves.values()].flatMap(({ ready }) => ready.splice(0));
    await Promise.all(all.map(this.#end));
  }
}
