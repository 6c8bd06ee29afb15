/** Ready warm machines by their source, and which of them is wanted least. */
import { type Demand, NO_DEMAND, rateOf, wantedOnceMore } from "./demand.ts";

/** The machines of one source. */
export interface Shelf<M> {
  ready: M[];
  /** Number of machines that are being made. */
  making: number;
  /** Last time that the source was asked for or kept hot, in milliseconds since 1970. */
  wantedAt: number;
  /** Number of requests; those within `SAME_TIME_MS` count once. */
  times: number;
  /** Rate of the requests; each one counts. */
  demand: Demand;
  /** Facts from the source's manifest; absent until it is read. */
  of?: { template: string; size: string; mem_mb: number };
}

/** Interval within which requests for a source, such as those of sixteen forked children, count once in `times`. */
const SAME_TIME_MS = 1_000;

export class WarmStock<M> {
  readonly shelves = new Map<string, Shelf<M>>();
  readonly #end: (machine: M) => Promise<void>;
  /** Machines that are away from their shelf while they are checked. */
  readonly #borrowed = new Set<Promise<unknown>>();
  #givingUp: Promise<boolean> | undefined;

  constructor(end: (machine: M) => Promise<void>) {
    this.#end = end;
  }

  /** Counts a request for the source. */
  want(key: string, now = Date.now()): Shelf<M> {
    const before = this.shelves.get(key)?.wantedAt ?? Number.NEGATIVE_INFINITY;
    const shelf = this.keep(key, now);
    if (now - before > SAME_TIME_MS) shelf.times++;
    shelf.demand = wantedOnceMore(shelf.demand, now);
    return shelf;
  }

  /** Keeps the source hot without counting a request. */
  keep(key: string, now = Date.now()): Shelf<M> {
    const fresh: Shelf<M> = { ready: [], making: 0, wantedAt: now, times: 0, demand: NO_DEMAND };
    const shelf = this.shelves.get(key) ?? fresh;
    this.shelves.set(key, shelf);
    shelf.wantedAt = now;
    return shelf;
  }

  /** Ends the ready machines of the source. Those still being made end when they are finished. */
  async drop(key: string): Promise<void> {
    const shelf = this.shelves.get(key);
    this.shelves.delete(key);
    await Promise.all((shelf?.ready.splice(0) ?? []).map(this.#end));
  }

  /** Adds a machine to the shelf that it was made for, or ends it if that was dropped meanwhile. */
  async put(key: string, shelf: Shelf<M>, machine: M): Promise<void> {
    if (this.shelves.get(key) === shelf) shelf.ready.push(machine);
    else await this.#end(machine);
  }

  /** Takes the machine off its shelf while `use` runs, and ends it if `use` returns that it is not good any more. */
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
   * Ends the least wanted machine: the lowest demand, of equals the one wanted longest ago. False if none is left.
   * Concurrent calls wait for the same machine.
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
