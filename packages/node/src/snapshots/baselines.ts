/** The baselines of this node: one snapshot per template, version and size. */
import { existsSync } from "node:fs";
import { readlink } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { BaselineChecks } from "./baseline-checks.ts";
import { idOfBaseline } from "./baseline-id.ts";
import { builtKeys, findBuilt } from "./built-baselines.ts";
import {
  type Baseline,
  type BaselinesByKey,
  type FindDeps,
  findBaselines,
  findBaselinesOf,
} from "./find-baselines.ts";
import { visibleFoldersIn } from "./folder.ts";
import { isolationOf, manifestPath } from "./manifest.ts";

interface BaselineDeps extends FindDeps {
  dataDir: string;
}

/** After the daemon's start, when machines that start and saved states that are loaded need the disk and the processor most. */
const CHECK_AFTER_MS = 120_000;
/** Shortest time before the images are read again for a baseline that is not known. */
const READ_AGAIN_MS = 5_000;

/** The baselines that this node can load. One that was baked since the daemon started is found when it is requested. */
export class Baselines {
  readonly #deps: BaselineDeps;
  #known: BaselinesByKey = new Map();
  #readAt = 0;
  /** Current versions of templates that this daemon did not start with, once they were read. */
  readonly #noticed = new Set<string>();
  #noticing: Promise<void> | undefined;
  /** How machines run that start from a build, by the key of its baseline, whose manifest is read once for that. */
  #builtIsolation = new Map<string, "kvm" | "emulated">();
  readonly #checks: BaselineChecks;

  constructor(deps: BaselineDeps) {
    this.#deps = deps;
    this.#checks = new BaselineChecks({ log: deps.log, onRefused: (baseline) => this.#withdraw(baseline) });
  }

  #withdraw(baseline: Baseline): void {
    for (const [key, known] of this.#known) if (known === baseline) this.#known.delete(key);
  }

  async read(): Promise<void> {
    this.#readAt = Date.now();
    const before = new Map([...this.#known.values()].map((baseline) => [baseline.dir, baseline]));
    const found = this.#offered(await findBaselines(this.#deps));
    this.#known = new Map(found.map(([key, baseline]) => [key, keep(before.get(baseline.dir), baseline)]));
  }

  #offered(found: BaselinesByKey): [string, Baseline][] {
    return [...found].filter(([, baseline]) => !this.#checks.isRefused(baseline));
  }

  /**
   * Offers templates that set-up has made since the daemon started. What is offered already stays as it is: a version that
   * became current meanwhile may be one for a QEMU that this daemon does not use. Nobody waits for it but tests.
   */
  notice(): Promise<void> {
    this.#noticing ??= this.#notice()
      .catch((error: Error) => this.#deps.log.warn({ reason: error.message }, "templates cannot be listed"))
      .finally(() => {
        this.#noticing = undefined;
      });
    return this.#noticing;
  }

  async #notice(): Promise<void> {
    const offered = new Set(this.all.map(({ manifest }) => manifest.template));
    const templates = path.join(this.#deps.imagesDir, "templates");
    for (const template of await visibleFoldersIn(templates)) {
      const current = await readlink(path.join(templates, template, "current")).catch(() => undefined);
      const version = `${template}@${current}`;
      if (current === undefined || offered.has(template) || this.#noticed.has(version)) continue;
      this.#noticed.add(version);
      for (const [key, baseline] of this.#offered(await findBaselinesOf(this.#deps, template)))
        this.#known.set(key, baseline);
    }
  }

  get(key: string): Baseline | undefined {
    const known = this.#known.get(key);
    return known && isThere(known) ? known : undefined;
  }

  /** The baseline in a folder. */
  at(dir: string): Baseline | undefined {
    return this.all.find((baseline) => baseline.dir === dir);
  }

  async find(key: string): Promise<Baseline | undefined> {
    const built = await findBuilt(this.#deps.dataDir, key);
    if (built) return built;
    if (!this.get(key) && Date.now() - this.#readAt > READ_AGAIN_MS) await this.read();
    return this.get(key);
  }

  /** As `find`, for a load. Undefined also for a baseline that turns out to be damaged, which is not offered from then on. */
  async findToLoad(key: string): Promise<Baseline | undefined> {
    return await this.#checks.verified(await this.find(key));
  }

  /** As `at`, for a load. */
  async atToLoad(dir: string): Promise<Baseline | undefined> {
    return await this.#checks.verified(this.at(dir));
  }

  /**
   * Verifies the current versions that were not loaded by then, one after the other, so that damage is known before somebody
   * needs them.
   */
  async checkAll(over: AbortSignal, afterMs = CHECK_AFTER_MS): Promise<void> {
    await sleep(afterMs, over);
    for (const baseline of this.all) {
      if (over.aborted) return;
      await this.#checks
        .verified(baseline)
        .catch((err: unknown) =>
          this.#deps.log.warn({ err, dir: baseline.dir }, "a baseline is verified at its first load only"),
        );
    }
    await this.close();
  }

  /** Ends the thread that verifies; another verification starts it again. */
  async close(): Promise<void> {
    await this.#checks.close();
  }

  /** The baseline that has this id, of a template or of a build. */
  async withId(id: string): Promise<Baseline | undefined> {
    const isIt = ({ manifest }: Baseline) => idOfBaseline(manifest) === id;
    const known = this.all.find(isIt);
    if (known) return known;
    for (const key of await builtKeys(this.#deps.dataDir)) {
      const built = await findBuilt(this.#deps.dataDir, key).catch(() => undefined);
      if (built && isIt(built)) return built;
    }
    return undefined;
  }

  /** How machines run that start from builds, one word for each of their baselines. */
  async builtIsolation(): Promise<("kvm" | "emulated")[]> {
    const known = this.#builtIsolation;
    const now: typeof known = new Map();
    for (const key of await builtKeys(this.#deps.dataDir)) {
      const built = known.has(key)
        ? undefined
        : await findBuilt(this.#deps.dataDir, key).catch(() => undefined);
      const isolation = known.get(key) ?? (built && isolationOf(built.manifest));
      if (isolation) now.set(key, isolation);
    }
    this.#builtIsolation = now;
    return [...now.values()];
  }

  /** All baselines, current versions first, which a create without a version gets. */
  get all(): Baseline[] {
    const there = [...new Set(this.#known.values())].filter(isThere);
    return there.toSorted((a, b) => Number(b.isCurrent) - Number(a.isCurrent));
  }
}

/** The object that was read before, which may be verified, if its files are still the same. */
function keep(before: Baseline | undefined, now: Baseline): Baseline {
  const isSame = before !== undefined && JSON.stringify(before.manifest) === JSON.stringify(now.manifest);
  return isSame ? Object.assign(before, { isCurrent: now.isCurrent, origin: now.origin }) : now;
}

/** Whether the baseline still exists: set-up removes old versions while daemons run. */
const isThere = ({ dir }: Baseline) => existsSync(manifestPath(dir));
