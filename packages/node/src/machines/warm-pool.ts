/**
 * Machines that are loaded and stopped ahead, so that a create only needs identity and `cont`: of each hot baseline,
 * warmed by first commands, and of saved states that new sessions were started from more than once lately. How many is told
 * by `demand.ts`. Made in the background where processor and memory are free, looked after every minute, and thrown away
 * when that fails (performance.md "Techniques").
 */
import { freemem } from "node:os";
import { sleep, stopwatch } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { Processor } from "../host/processor.ts";
import type { Baselines } from "../snapshots/baselines.ts";
import type { SnapshotTable } from "../snapshots/table.ts";
import { type Kind, lackOf, mayMake, rateOf, worthHaving } from "./demand.ts";
import { HOT_MS, hotKeys } from "./hot.ts";
import type { MachineTable } from "./table.ts";
import { isStillGood, makeWarm, type WarmDeps, type WarmMachine, type WarmSource } from "./warm-machine.ts";
import { type Shelf, WarmStock } from "./warm-stock.ts";

const MIB = 1024 * 1024;
/** Memory that a pool leaves free beside what its next machine may come to use. */
const HEADROOM_BYTES = 2048 * MIB;
/** With less, machines that wait end before anybody is refused for their memory. */
const PRESSURE_BYTES = 1024 * MIB;
/** Who takes a machine lets it go and runs a command in it first: that does not share the processor with the next one's making. */
const SETTLE_MS = 200;
/** How often to see whether the processor has room, while machines lack. */
const LOOK_MS = 250;
/** While none lacks: for the memory, and for baselines that set-up made meanwhile. */
const REST_MS = 5_000;
const KEEP_ALIVE_MS = 60_000;
/** What could not be made is tried again after so long: a disk that is full, say, is so for a while. */
const RETRY_MS = 60_000;
/** What making one takes until one was made. */
const FIRST_GUESS_MS = 1_500;

export interface WarmPoolDeps extends WarmDeps {
  baselines: Baselines;
  snapshots: SnapshotTable;
  table: Pick<MachineTable, "count">;
  log: Log;
  /** Bytes of memory that can be had without swapping; of this host, unless somebody else tells. */
  freeBytes?: () => number;
  make?: typeof makeWarm;
}

interface WarmCount {
  template: string;
  size: string;
  snapshot_id?: string;
  ready: number;
  wanted: number;
}

export class WarmPool {
  /** New machines since the daemon started: those that found one ready, and those that were loaded. */
  readonly starts = { from_pool: 0, loaded: 0 };
  readonly #deps: Required<WarmPoolDeps>;
  /** Baselines that are wanted from the start on, without being asked for. */
  readonly #hot: readonly string[];
  /** By the folder that machines are loaded from: `base` and `base@<its current version>` are one, and share what waits. */
  readonly #stock = new WarmStock<WarmMachine>((warm) => this.#discard(warm));
  readonly #processor = new Processor();
  /** Of folders of which none could be made, until when nobody tries again. */
  readonly #restsUntil = new Map<string, number>();
  /** By folder, how long making took. */
  readonly #makeMs = new Map<string, number>();
  /** By folder, how many are worth having. */
  #wanted = new Map<string, number>();
  readonly #making = new Set<Promise<void>>();
  #takenAt = 0;
  #rest = new AbortController();

  constructor(deps: WarmPoolDeps, hot: readonly string[]) {
    this.#deps = { freeBytes: freemem, make: makeWarm, ...deps };
    this.#hot = hot;
  }

  /** A machine of this folder that is nobody's from now on but the caller's; undefined when none is ready. */
  take(dir: string): WarmMachine | undefined {
    this.#takenAt = Date.now();
    const shelf = this.#stock.want(dir);
    const warm = this.#takeAlive(shelf);
    this.starts[warm ? "from_pool" : "loaded"]++;
    setTimeout(() => this.#rest.abort(), SETTLE_MS).unref();
    return warm;
  }

  #takeAlive({ ready }: Shelf<WarmMachine>): WarmMachine | undefined {
    for (let warm = ready.shift(); warm; warm = ready.shift()) {
      if (!warm.qmp.isClosed) return warm;
      void this.#discard(warm);
    }
    return undefined;
  }

  /** By what they are made of: machines that are ready, and how many are worth having. */
  get counts(): WarmCount[] {
    const { baselines, snapshots } = this.#deps;
    return [...this.#stock.shelves].flatMap(([dir, { ready, of }]) => {
      const baseline = baselines.at(dir)?.manifest;
      const id = snapshots.idOf(dir);
      const { template, size } = baseline ?? of ?? {};
      const wanted = this.#wanted.get(dir) ?? 0;
      if (template === undefined || size === undefined || (!baseline && ready.length + wanted === 0))
        return [];
      return [{ template, size, ...(!baseline && { snapshot_id: id }), ready: ready.length, wanted }];
    });
  }

  /** Ends the machine that is wanted least, for whoever needs its memory; false when none is left. */
  async giveUpOne(): Promise<boolean> {
    const isGivenUp = await this.#stock.giveUpOne();
    if (isGivenUp) this.#deps.log.info("memory is short: a warm machine gives way");
    return isGivenUp;
  }

  /** What was made of a folder that is being removed goes with it. */
  async forget(dir: string): Promise<void> {
    for (const known of [this.#restsUntil, this.#makeMs, this.#wanted]) known.delete(dir);
    await this.#stock.drop(dir);
  }

  /** Fills and keeps fresh until told to stop, then ends what it holds. */
  async run(until: AbortSignal): Promise<void> {
    let freshenedAt = Date.now();
    while (!until.aborted) {
      const isWhole = await this.#look();
      if (Date.now() - freshenedAt >= KEEP_ALIVE_MS) {
        freshenedAt = Date.now();
        await this.#freshen();
      }
      await sleep(isWhole ? REST_MS : LOOK_MS, AbortSignal.any([until, this.#rest.signal]));
      this.#rest = new AbortController();
    }
    await Promise.all(this.#making);
    await this.#stock.endAll();
  }

  /** Begins with what lacks most, where there is room for it; false while something lacks. */
  async #look(): Promise<boolean> {
    const { config, table, freeBytes } = this.#deps;
    const processor = this.#processor.look();
    for (const key of this.#hot) this.#keepHot(key);
    if (freeBytes() < PRESSURE_BYTES) await this.giveUpOne();
    const kinds = await this.#kinds();
    const worth = worthHaving(kinds, {
      least: config.warmMachines,
      most: config.maxWarmMachines,
      freeBytes: freeBytes() - HEADROOM_BYTES,
      // One for whoever takes the place of a machine that ends.
      machines: Math.max(1, config.maxMachines - table.count),
    });
    this.#wanted = new Map(kinds.map(({ key }) => [key, worth.filter((one) => one === key).length]));
    const next = lackOf(kinds, worth);
    if (!next) return true;
    const quietMs = Date.now() - this.#takenAt;
    if (mayMake(processor, { quietMs, making: this.#making.size, next })) this.#begin(next.key);
    return false;
  }

  #keepHot(key: string): void {
    const baseline = this.#deps.baselines.get(key);
    if (baseline) this.#stock.keep(baseline.dir);
  }

  async #kinds(now = Date.now()): Promise<Kind[]> {
    const kinds: Kind[] = [];
    for (const key of this.#hotDirs()) {
      const shelf = this.#stock.shelves.get(key);
      if (shelf) shelf.of ??= (await this.#sourceAt(key))?.manifest;
      if (!shelf?.of) continue;
      const isResting = (this.#restsUntil.get(key) ?? 0) > now;
      kinds.push({
        key,
        isBaseline: this.#isBaseline(key),
        rate: rateOf(shelf.demand, now),
        makeMs: this.#makeMs.get(key) ?? FIRST_GUESS_MS,
        // What cannot be made holds up nothing behind it.
        bytes: isResting ? Number.POSITIVE_INFINITY : shelf.of.mem_mb * MIB,
        there: shelf.ready.length + shelf.making,
      });
    }
    return kinds;
  }

  #begin(dir: string): void {
    const shelf = this.#stock.shelves.get(dir);
    if (!shelf) return;
    shelf.making++;
    const made = this.#make(dir)
      .then(async (warm) => {
        shelf.making--;
        if (warm) await this.#stock.put(dir, shelf, warm);
      })
      .finally(() => {
        this.#making.delete(made);
        this.#rest.abort();
      });
    this.#making.add(made);
  }

  async #make(dir: string): Promise<WarmMachine | undefined> {
    const { snapshots, log, make } = this.#deps;
    this.#restsUntil.delete(dir);
    const source = await this.#sourceAt(dir);
    const watch = stopwatch();
    try {
      if (!source) throw new Error("what it would be made of is gone");
      const warm = await make(this.#deps, source);
      const ms = watch();
      this.#makeMs.set(dir, ((this.#makeMs.get(dir) ?? ms) + ms) / 2);
      log.info({ machine: warm.id, template: warm.template, size: warm.size, ms }, "warm machine ready");
      return warm;
    } catch (cause) {
      this.#restsUntil.set(dir, Date.now() + RETRY_MS);
      const err = !source || source.isOurs ? cause : snapshots.unloadable(source, cause as Error);
      log.warn({ dir, err }, "no warm machine could be made ahead");
      return undefined;
    }
  }

  /** Ends a machine that nobody is to have, and removes all of it. */
  async #discard(warm: WarmMachine): Promise<void> {
    warm.agent.close();
    await warm.undo
      .unwind()
      .catch((err: unknown) =>
        this.#deps.log.error({ err, machine: warm.id }, "a warm machine was not removed"),
      );
  }

  #hotDirs(): string[] {
    return hotKeys(this.#stock.shelves, (dir) => this.#isBaseline(dir));
  }

  #isBaseline(dir: string): boolean {
    return this.#deps.baselines.at(dir) !== undefined;
  }

  async #sourceAt(dir: string): Promise<WarmSource | undefined> {
    const { baselines, snapshots } = this.#deps;
    const baseline = baselines.at(dir);
    if (baseline) return { ...baseline, isOurs: true };
    const id = snapshots.idOf(dir);
    const saved = id === undefined ? undefined : await snapshots.check(id).catch(() => undefined);
    return saved && { ...saved, isVerified: false, isOurs: false };
  }

  /** One after the other: a create that comes meanwhile takes one of the rest. What is more than is worth having ends. */
  async #freshen(): Promise<void> {
    for (const [dir, shelf] of [...this.#stock.shelves]) {
      const surplus = shelf.ready.length - (this.#wanted.get(dir) ?? 0);
      for (const [at, warm] of [...shelf.ready].entries())
        await this.#stock.borrow(dir, warm, async () => at >= surplus && (await isStillGood(warm)));
      if (Date.now() - shelf.wantedAt >= HOT_MS) await this.forget(dir);
    }
  }
}
