/**
 * Machines that are loaded and stopped ahead, so that a create only needs identity and `cont`: of each hot baseline,
 * warmed by first commands, and of saved states that new sessions were started from more than once lately. Made in the
 * background while the node is quiet and memory is free, looked after every minute, and thrown away when that fails
 * (performance.md "Techniques").
 */
import { freemem } from "node:os";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { Baselines } from "../snapshots/baselines.ts";
import type { SnapshotTable } from "../snapshots/table.ts";
import { HOT_MS, hotKeys } from "./hot.ts";
import { isStillGood, makeWarm, type WarmDeps, type WarmMachine, type WarmSource } from "./warm-machine.ts";
import { WarmStock } from "./warm-stock.ts";

const MIB = 1024 * 1024;
/** Memory that a pool leaves free beside what its next machine may come to use. */
const HEADROOM_BYTES = 2048 * MIB;
/** A pool is filled when nobody has started a machine for so long: filling takes the processor that they need. */
const QUIET_MS = 1_500;
const KEEP_ALIVE_MS = 60_000;
/** What could not be made is tried again after so long: a disk that is full, say, is so for a while. */
const RETRY_MS = 60_000;

export interface WarmPoolDeps extends WarmDeps {
  baselines: Baselines;
  snapshots: SnapshotTable;
  log: Log;
}

export class WarmPool {
  readonly #deps: WarmPoolDeps;
  /** Baselines that are wanted from the start on, without being asked for. */
  readonly #hot: readonly string[];
  /** By the folder that machines are loaded from: `base` and `base@<its current version>` are one, and share what waits. */
  readonly #stock = new WarmStock<WarmMachine>((warm) => this.#discard(warm));
  /** Of folders of which none could be made, until when nobody tries again. */
  readonly #restsUntil = new Map<string, number>();
  #lastTaken = 0;

  constructor(deps: WarmPoolDeps, hot: readonly string[]) {
    this.#deps = deps;
    this.#hot = hot;
  }

  /** A machine of this folder that is nobody's from now on but the caller's; undefined when none is ready. */
  take(dir: string): WarmMachine | undefined {
    this.#lastTaken = Date.now();
    const shelf = this.#stock.want(dir);
    for (let warm = shelf.ready.shift(); warm; warm = shelf.ready.shift()) {
      if (!warm.qmp.isClosed) return warm;
      void this.#discard(warm);
    }
    return undefined;
  }

  /** Ready machines by what they were made of. */
  get counts(): { template: string; size: string; snapshot_id?: string; ready: number }[] {
    return [...this.#stock.shelves].flatMap(([dir, { ready }]) => {
      const manifest = this.#deps.baselines.at(dir)?.manifest;
      if (manifest) return [{ template: manifest.template, size: manifest.size, ready: ready.length }];
      const [first] = ready;
      const id = this.#deps.snapshots.idOf(dir);
      if (!first || id === undefined) return [];
      return [{ template: first.template, size: first.size, snapshot_id: id, ready: ready.length }];
    });
  }

  /** Ends the machine that is wanted least, for whoever needs its memory; false when none is left. */
  async giveUpOne(): Promise<boolean> {
    const isGivenUp = await this.#stock.giveUpOne();
    if (isGivenUp) this.#deps.log.info("a start lacks memory: warm machines give way");
    return isGivenUp;
  }

  /** What was made of a folder that is being removed goes with it. */
  async forget(dir: string): Promise<void> {
    this.#restsUntil.delete(dir);
    await this.#stock.drop(dir);
  }

  /** Fills and keeps fresh until told to stop, then ends what it holds. */
  async run(until: AbortSignal): Promise<void> {
    let freshenedAt = Date.now();
    while (!until.aborted) {
      for (const key of this.#hot) this.#keepHot(key);
      await sleep(QUIET_MS / 3, until);
      if (until.aborted) break;
      await this.#fillOne();
      if (Date.now() - freshenedAt < KEEP_ALIVE_MS) continue;
      freshenedAt = Date.now();
      await this.#freshen();
    }
    await this.#stock.endAll();
  }

  #keepHot(key: string): void {
    const baseline = this.#deps.baselines.get(key);
    if (baseline) this.#stock.want(baseline.dir);
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

  /** One at a time, of the first that lacks one; what cannot be made holds up nothing behind it. */
  async #fillOne(): Promise<void> {
    const { config } = this.#deps;
    if (config.warmMachines === 0 || Date.now() - this.#lastTaken < QUIET_MS) return;
    for (const dir of this.#hotDirs()) {
      const shelf = this.#stock.shelves.get(dir);
      const rests = (this.#restsUntil.get(dir) ?? 0) > Date.now();
      if (!shelf || rests || shelf.ready.length >= config.warmMachines) continue;
      const source = await this.#sourceAt(dir);
      if (!source || freemem() < HEADROOM_BYTES + source.manifest.mem_mb * MIB) continue;
      const warm = await this.#make(dir, source);
      if (!warm) continue;
      await this.#stock.put(dir, shelf, warm);
      return;
    }
  }

  async #make(dir: string, source: WarmSource): Promise<WarmMachine | undefined> {
    const { snapshots, log } = this.#deps;
    this.#restsUntil.delete(dir);
    try {
      const warm = await makeWarm(this.#deps, source);
      log.info({ machine: warm.id, template: warm.template, size: warm.size }, "warm machine ready");
      return warm;
    } catch (cause) {
      this.#restsUntil.set(dir, Date.now() + RETRY_MS);
      const err = source.isOurs ? cause : snapshots.unloadable(source, cause as Error);
      log.warn({ dir, err }, "no warm machine could be made ahead");
      return undefined;
    }
  }

  #hotDirs(): string[] {
    return hotKeys(this.#stock.shelves, (dir) => this.#deps.baselines.at(dir) !== undefined);
  }

  async #sourceAt(dir: string): Promise<WarmSource | undefined> {
    const { baselines, snapshots } = this.#deps;
    const baseline = baselines.at(dir);
    if (baseline) return { ...baseline, isOurs: true };
    const id = snapshots.idOf(dir);
    const saved = id === undefined ? undefined : await snapshots.check(id).catch(() => undefined);
    return saved && { ...saved, isVerified: false, isOurs: false };
  }

  /** One after the other: a create that comes meanwhile takes one of the rest. */
  async #freshen(): Promise<void> {
    const hot = new Set(this.#hotDirs());
    for (const [dir, shelf] of [...this.#stock.shelves]) {
      for (const warm of [...shelf.ready])
        await this.#stock.borrow(dir, warm, async () => hot.has(dir) && (await isStillGood(warm)));
      if (Date.now() - shelf.wantedAt >= HOT_MS) await this.forget(dir);
    }
  }
}
