/** What waits for whoever asks, by what it was made of, and which of it is wanted least. */
import { type Demand, NO_DEMAND, rateOf, wantedOnceMore } from "./demand.ts";

export interface Shelf<M> {
  ready: M[];
  /** How many are being made for it. */
  making: number;
  wantedAt: number;
  /** How often it was wanted; those who want it at the same time count once. */
  times: number;
  /** Here each of them counts. */
  demand: Demand;
  /** What its machines are made of, once that was looked at. */
  of?: { template: string; size: string; mem_mb: number };
}

/** Who wants the same so soon after another, such as sixteen children, is not one more. */
const SAME_TIME_MS = 1_000;

export class WarmStock<M> {
  readonly shelves = new Map<string, Shelf<M>>();
  readonly #end: (machine: M) => Promise<void>;
  /** Machines that are away from their shelf for a moment. */
  readonly #borrowed = new Set<Promise<unknown>>();
  #givingUp: Promise<boolean> | undefined;

  constructor(end: (machine: M) => Promise<void>) {
    this.#end = end;
  }

  /** For somebody who asks for one. */
  want(key: string, now = Date.now()): Shelf<M> {
    const before = this.shelves.get(key)?.wantedAt ?? Number.NEGATIVE_INFINITY;
    const shelf = this.keep(key, now);
    if (now - before > SAME_TIME_MS) shelf.times++;
    shelf.demand = wantedOnceMore(shelf.demand, now);
    return shelf;
  }

  /** As if it was wanted now, though nobody asks. */
  keep(key: string, now = Date.now()): Shelf<M> {
    const fresh: Shelf<M> = { ready: [], making: 0, wantedAt: now, times: 0, demand: NO_DEMAND };
    const shelf = this.shelves.get(key) ?? fresh;
    this.shelves.set(key, shelf);
    shelf.wantedAt = now;
    return shelf;
  }

  /** What is made of it from now on is not to be had any more, and what waits is ended. */
  async drop(key: string): Promise<void> {
    const shelf = this.shelves.get(key);
    this.shelves.delete(key);
    await Promise.all((shelf?.ready.splice(0) ?? []).map(this.#end));
  }

  /** For a machine that was made for this shelf, which may have been dropped meanwhile. */
  async put(key: string, shelf: Shelf<M>, machine: M): Promise<void> {
    if (this.shelves.get(key) === shelf) shelf.ready.push(machine);
    else await this.#end(machine);
  }

  /** Nobody else gets it meanwhile; `use` tells whether it is still worth having. */
  async borrow(key: string, machine: M, use: (machine: M) => Promise<boolean>): Promise<void> {
    const shelf = this.shelves.get(key);
    const at = shelf?.ready.indexOf(machine) ?? -1;
    if (!shelf || at < 0) return;
    shelf.ready.splice(at, 1);
    const done = use(machine).then(async (isGood) => {
      if (isGood) await this.put(key, shelf, machine);
      else await this.#end(machine);
    });
    this.#borrowed.add(done);
    await done.finally(() => this.#borrowed.delete(done));
  }

  /**
   * Ends the one that is wanted least: the least often, of equals the longest ago. False when none is left. Whoever asks
   * meanwhile waits for the same one.
   */
  giveUpOne(): Promise<boolean> {
    this.#givingUp ??= this.#giveUpOne().finally(() => {
      this.#givingUp = undefined;
    });
    return this.#givingUp;
  }

  async #giveUpOne(): Promise<boolean> {
    const filled = [...this.shelves.values()].filter(({ ready }) => ready.length > 0);
    const now = Date.now();
    const [least] = filled.toSorted(
      (a, b) => rateOf(a.demand, now) - rateOf(b.demand, now) || a.wantedAt - b.wantedAt,
    );
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
