/**
 * Keeps warm machines, which are loaded and stopped ahead, so that a create only needs an identity and `cont`.
 * Sources are the hot baselines, whose machines have run first commands, and saved states that several new sessions
 * started from lately. `demand.ts` decides how many. They are made in the background while processor and memory are
 * free, checked every minute, and discarded if the check fails.
 */
import { freemem } from "node:os";
import type { NodeInfo } from "@vivarium/contract/node";
import { sleep, stopwatch } from "@vivarium/kit/clock";
import { MIB } from "@vivarium/kit/sizes";
import { Processor } from "../host/processor.ts";
import { boots } from "../snapshots/manifest.ts";
import { type Kind, lackOf, mayMake, rateOf, worthHaving } from "./demand.ts";
import type { MachineDeps } from "./deps.ts";
import { HOT_MS, hotKeys } from "./hot.ts";
import { isUsable, makeWarm, type WarmDeps, type WarmMachine, type WarmSource } from "./warm-machine.ts";
import { type Shelf, WarmStock } from "./warm-stock.ts";

/** Memory that the pool leaves free, besides that of the machines that it still wants to make. */
const HEADROOM_BYTES = 2048 * MIB;
/** Free memory below which warm machines are ended, before a start would be refused for lack of memory. */
const PRESSURE_BYTES = 1024 * MIB;
/** Delay before the next machine is made, so that it does not compete with the first command of a new session. */
const SETTLE_MS = 200;
/** How often to check for an idle processor while machines are missing. */
const LACKING_CHECK_MS = 250;
/** How often to check while none are missing: for memory pressure, and for baselines that set-up made meanwhile. */
const REST_MS = 5_000;
/** How often the ready machines are checked. */
const KEEP_ALIVE_MS = 60_000;
/** Back-off of a source after a failure, such as a full disk. */
const RETRY_MS = 60_000;
/** Time to make a machine, assumed until one of its source was made. */
const FIRST_GUESS_MS = 1_500;

export interface WarmPoolDeps extends WarmDeps, Pick<MachineDeps, "baselines" | "snapshots"> {
  /** Bytes of memory available without swapping. Default: this host's. */
  freeBytes?: () => number;
  make?: typeof makeWarm;
}

export class WarmPool {
  /** New machines since the daemon started: taken from the pool, and loaded. */
  readonly starts = { from_pool: 0, loaded: 0 };
  readonly #deps: Required<WarmPoolDeps>;
  /** Baselines that are wanted from the start, without a request. */
  readonly #hot: readonly string[];
  /** Ready machines by the folder that they are loaded from, which `base` and `base@<its current version>` share. */
  readonly #stock = new WarmStock<WarmMachine>((warm) => this.#discard(warm));
  readonly #processor = new Processor();
  /** Folders of which no machine could be made, and the end of their back-off. */
  readonly #restsUntil = new Map<string, number>();
  /** Mean time to make a machine, by folder. */
  readonly #makeMs = new Map<string, number>();
  /** Number of machines worth having, by folder. */
  #wanted = new Map<string, number>();
  readonly #making = new Set<Promise<void>>();
  #takenAt = 0;
  #rest = new AbortController();

  constructor(deps: WarmPoolDeps, hot: readonly string[]) {
    this.#deps = { freeBytes: freemem, make: makeWarm, ...deps };
    this.#hot = hot;
  }

  /** Counts a request and returns a machine of this folder, now owned by the caller. Undefined if none is ready. */
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

  /** Ready machines by their source, and how many are worth having. */
  get counts(): NonNullable<NodeInfo["warm"]> {
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

  /** Ends the least wanted machine to free its memory. False if none is left. */
  async giveUpOne(): Promise<boolean> {
    const isGivenUp = await this.#stock.giveUpOne();
    if (isGivenUp) this.#deps.log.info("memory is short: a warm machine gives way");
    return isGivenUp;
  }

  /** Drops the machines of a folder that is being removed. */
  async forget(dir: string): Promise<void> {
    for (const known of [this.#restsUntil, this.#makeMs, this.#wanted]) known.delete(dir);
    await this.#stock.drop(dir);
  }

  /** Fills the pool and keeps it fresh until the signal aborts, then ends its machines. */
  async run(until: AbortSignal): Promise<void> {
    let freshenedAt = Date.now();
    while (!until.aborted) {
      const isWhole = await this.#makeLacking();
      if (Date.now() - freshenedAt >= KEEP_ALIVE_MS) {
        freshenedAt = Date.now();
        await this.#freshen();
      }
      await sleep(isWhole ? REST_MS : LACKING_CHECK_MS, AbortSignal.any([until, this.#rest.signal]));
      this.#rest = new AbortController();
    }
    await Promise.all(this.#making);
    await this.#stock.endAll();
  }

  /** Starts to make the first missing machine if the host has capacity. Returns false while machines are missing. */
  async #makeLacking(): Promise<boolean> {
    const { config, table, freeBytes } = this.#deps;
    const processor = this.#processor.look();
    for (const key of this.#hot) this.#keepHot(key);
    if (freeBytes() < PRESSURE_BYTES) await this.giveUpOne();
    const kinds = await this.#kinds();
    const worth = worthHaving(kinds, {
      least: config.warmMachines,
      most: config.maxWarmMachines,
      freeBytes: freeBytes() - HEADROOM_BYTES,
      // At least one, for a start that replaces a machine that ends.
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
        // A source in back-off does not block the sources after it.
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

  /** Ends a machine that no session is to get, and removes all of it. */
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
    const baseline = await baselines.atToLoad(dir).catch(() => undefined);
    if (baseline) return { ...baseline, isOurs: true };
    const id = snapshots.idOf(dir);
    const saved = id === undefined ? undefined : await snapshots.check(id).catch(() => undefined);
    // A sealed state opens with a key that this node has only during the calls that bring it; one without memory boots.
    if (!saved || saved.manifest.sealed || boots(saved.manifest)) return undefined;
    return { ...saved, isVerified: false, isOurs: false };
  }

  /** Checks ready machines one by one, so that a create finds the others, and ends those that are not wanted. */
  async #freshen(): Promise<void> {
    for (const [dir, shelf] of [...this.#stock.shelves]) {
      const surplus = shelf.ready.length - (this.#wanted.get(dir) ?? 0);
      for (const [at, warm] of [...shelf.ready].entries())
        await this.#stock.borrow(dir, warm, async () => at >= surplus && (await isUsable(warm)));
      if (Date.now() - shelf.wantedAt >= HOT_MS) await this.forget(dir);
    }
  }
}
