/**
 * Finds the baselines of this node: one snapshot per template, version and size. Those of the current version of each template
 * are verified once, before their first load or some time after the daemon's start: together they have gigabytes, which a start
 * would take long to read. Older versions, which are rarely used, are verified at each load.
 */
import { existsSync } from "node:fs";
import { readFile, readlink, realpath } from "node:fs/promises";
import path from "node:path";
import { TemplateOrigin } from "@vivarium/contract/api";
import { BuildId } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { z } from "zod";
import type { QemuRoot } from "../host/qemu-root.ts";
import { idOfBaseline } from "./baseline-id.ts";
import { assertFits } from "./fit.ts";
import { foldersIn } from "./folder.ts";
import {
  isolationOf,
  type Loadable,
  lacksFile,
  manifestPath,
  readManifest,
  requireLoader,
  verifyFiles,
} from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";
import { SumsThread } from "./sums-thread.ts";

export interface Baseline extends Loadable {
  isCurrent: boolean;
  /** Whether it was verified since this daemon read it. Never of an older version. */
  isVerified: boolean;
  /** The origin of its template version. */
  origin: TemplateOrigin;
}

/** Baselines by `<template>@<version>/<size>`, and those of the current version also by `<template>/<size>`. */
type ByKey = Map<string, Baseline>;

interface BaselineDeps {
  imagesDir: string;
  dataDir: string;
  qemu: QemuRoot;
  log: Log;
}

/** After the daemon's start, when machines that start and saved states that are loaded need the disk and the processor most. */
const CHECK_AFTER_MS = 120_000;
/** Shortest time before the images are read again for a baseline that is not known. */
const READ_AGAIN_MS = 5_000;

/** The baselines that this node can load. One that was baked since the daemon started is found when it is requested. */
export class Baselines {
  readonly #deps: BaselineDeps;
  #known: ByKey = new Map();
  #readAt = 0;
  /** Current versions of templates that this daemon did not start with, once they were read. */
  readonly #noticed = new Set<string>();
  #noticing: Promise<void> | undefined;
  /** How machines run that start from a build, by the folder of its baseline, whose manifest is read once for that. */
  #builtIsolation = new Map<string, "kvm" | "emulated">();
  /** Verifications in progress, which all loads of the baseline wait for. */
  readonly #checks = new Map<Baseline, Promise<void>>();
  /** Not that of the captures, whose guests are stopped meanwhile: they must not wait for the gigabytes of a baseline. */
  #thread: SumsThread | undefined;
  /** By folder, the manifests of damaged baselines. One that is baked again has another. */
  readonly #refused = new Map<string, string>();

  constructor(deps: BaselineDeps) {
    this.#deps = deps;
  }

  async read(): Promise<void> {
    this.#readAt = Date.now();
    const before = new Map([...this.#known.values()].map((baseline) => [baseline.dir, baseline]));
    const found = this.#offered(await findBaselines(this.#deps));
    this.#known = new Map(found.map(([key, baseline]) => [key, keep(before.get(baseline.dir), baseline)]));
  }

  #offered(found: ByKey): [string, Baseline][] {
    return [...found].filter(([, baseline]) => !this.#isRefused(baseline));
  }

  #isRefused({ dir, manifest }: Baseline): boolean {
    return this.#refused.get(dir) === JSON.stringify(manifest);
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
    for (const template of await list(templates)) {
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
    const built = await this.#built(key);
    if (built) return built;
    if (!this.get(key) && Date.now() - this.#readAt > READ_AGAIN_MS) await this.read();
    return this.get(key);
  }

  /** As `find`, for a load. Undefined also for a baseline that turns out to be damaged, which is not offered from then on. */
  async findToLoad(key: string): Promise<Baseline | undefined> {
    return await this.#verified(await this.find(key));
  }

  /** As `at`, for a load. */
  async atToLoad(dir: string): Promise<Baseline | undefined> {
    return await this.#verified(this.at(dir));
  }

  /**
   * Verifies the current versions that were not loaded by then, one after the other, so that damage is known before somebody
   * needs them.
   */
  async checkAll(over: AbortSignal, afterMs = CHECK_AFTER_MS): Promise<void> {
    await sleep(afterMs, over);
    for (const baseline of this.all) {
      if (over.aborted) return;
      await this.#verified(baseline).catch((err: unknown) =>
        this.#deps.log.warn({ err, dir: baseline.dir }, "a baseline is verified at its first load only"),
      );
    }
    await this.close();
  }

  /** Ends the thread that verifies; another verification starts it again. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#checks.values());
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.close();
  }

  async #verified(baseline: Baseline | undefined): Promise<Baseline | undefined> {
    if (!baseline?.isCurrent || baseline.isVerified) return baseline;
    const check = this.#checks.get(baseline) ?? this.#check(baseline);
    this.#checks.set(baseline, check);
    return await check.then(
      () => baseline,
      (error: unknown) => {
        if (this.#isRefused(baseline)) return undefined;
        throw error;
      },
    );
  }

  async #check(baseline: Baseline): Promise<void> {
    this.#thread ??= new SumsThread({ log: this.#deps.log });
    try {
      await verifyFiles(this.#thread, baseline);
      baseline.isVerified = true;
    } catch (error) {
      // Otherwise it could not be read now, which says nothing of it.
      if (error instanceof UnusableSnapshot || lacksFile(baseline)) this.#refuse(baseline, error as Error);
      throw error;
    } finally {
      this.#checks.delete(baseline);
    }
  }

  #refuse(baseline: Baseline, error: Error): void {
    logRefused(this.#deps.log, baseline.dir, error);
    this.#refused.set(baseline.dir, JSON.stringify(baseline.manifest));
    for (const [key, known] of this.#known) if (known === baseline) this.#known.delete(key);
  }

  /** The baseline that has this id, of a template or of a build. */
  async withId(id: string): Promise<Baseline | undefined> {
    const isIt = ({ manifest }: Baseline) => idOfBaseline(manifest) === id;
    const known = this.all.find(isIt);
    if (known) return known;
    for (const key of await this.#builtKeys()) {
      const built = await this.#built(key).catch(() => undefined);
      if (built && isIt(built)) return built;
    }
    return undefined;
  }

  async #builtKeys(): Promise<string[]> {
    const parent = buildsDir(this.#deps.dataDir);
    const keysOf = async (id: string) =>
      (await list(path.join(parent, id))).map((size) => baselineKey(id, size));
    return (await Promise.all((await list(parent)).map(keysOf))).flat();
  }

  /** The baseline of a build, which `all` does not list. The record of a build is written last, once it is ready. */
  async #built(key: string): Promise<Baseline | undefined> {
    const [id = "", size = ""] = key.split("/");
    if (!BuildId.safeParse(id).success) return undefined;
    const dir = path.join(buildsDir(this.#deps.dataDir), id, size);
    const manifest = await readManifest(dir).catch(() => undefined);
    if (!manifest || !(await isReady(path.dirname(dir)))) return undefined;
    assertFits(manifest);
    return { dir, manifest, isCurrent: false, isVerified: false, origin: {} };
  }

  /** How machines run that start from builds, one word for each of their baselines. */
  async builtIsolation(): Promise<("kvm" | "emulated")[]> {
    const known = this.#builtIsolation;
    const now: typeof known = new Map();
    const parent = buildsDir(this.#deps.dataDir);
    for (const id of await list(parent))
      for (const size of await list(path.join(parent, id))) {
        const dir = path.join(parent, id, size);
        const built = known.has(dir)
          ? undefined
          : await this.#built(baselineKey(id, size)).catch(() => undefined);
        const isolation = known.get(dir) ?? (built && isolationOf(built.manifest));
        if (isolation) now.set(dir, isolation);
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

type FindDeps = Pick<BaselineDeps, "imagesDir" | "qemu" | "log">;

export async function findBaselines(deps: FindDeps): Promise<ByKey> {
  const found: ByKey = new Map();
  for (const template of await list(path.join(deps.imagesDir, "templates")))
    for (const [key, baseline] of await findBaselinesOf(deps, template)) found.set(key, baseline);
  return found;
}

async function findBaselinesOf(deps: FindDeps, template: string): Promise<ByKey> {
  const found: ByKey = new Map();
  const folder = path.join(deps.imagesDir, "templates", template);
  const current = await realpath(path.join(folder, "current")).catch(() => null);
  for (const version of await list(folder)) {
    const dir = path.join(folder, version);
    for (const baseline of await baselinesIn(deps, dir, dir === current)) {
      const { size } = baseline.manifest;
      found.set(baselineKey(`${template}@${version}`, size), baseline);
      if (dir === current) found.set(baselineKey(template, size), baseline);
    }
  }
  return found;
}

async function baselinesIn(
  { qemu, log }: FindDeps,
  version: string,
  isCurrent: boolean,
): Promise<Baseline[]> {
  const found: Baseline[] = [];
  const origin = await readOrigin(version).catch((error: Error) => {
    log.warn({ dir: version, reason: error.message }, "what a template was made of cannot be told");
    return {};
  });
  for (const size of await list(version)) {
    const dir = path.join(version, size);
    const manifest = await readManifest(dir).catch(() => null);
    if (manifest === null) continue;
    try {
      assertFits(manifest);
      if (isCurrent) requireLoader(qemu, manifest);
      found.push({ dir, manifest, isCurrent, isVerified: false, origin });
    } catch (error) {
      logRefused(log, dir, error as Error);
    }
  }
  return found;
}

function logRefused(log: Log, dir: string, { message }: Error): void {
  log.error({ dir, reason: message }, "baseline refused; bake it again");
}

/** Folder of the builds, each of which is the folder of a template once it is ready. */
export const buildsDir = (dataDir: string) => path.join(dataDir, "pool/b");

/** Whether the record of a build (`builds/record.ts`) says so. */
async function isReady(dir: string): Promise<boolean> {
  const text = await readFile(path.join(dir, "build.json"), "utf8").catch(() => "{}");
  return JSON.parse(text).status?.state === "ready";
}

export const baselineKey = (template: string, size: string) => `${template}/${size}`;

/** Folders in a folder, without those that are being made or removed, whose names begin with a dot. */
const list = async (dir: string) => (await foldersIn(dir)).filter((name) => !name.startsWith("."));

const Origin = TemplateOrigin.extend({
  built_at: z.iso
    .datetime()
    .transform((at) => new Date(at).toISOString())
    .optional(),
});

/**
 * The origin of a template version, as set-up wrote it beside the disk. Absent fields stay absent, and so does an
 * unreadable file: a template can be used without an origin.
 */
export async function readOrigin(versionDir: string): Promise<TemplateOrigin> {
  const text = await readFile(path.join(versionDir, "template.json"), "utf8").catch(() => "{}");
  return Origin.parse(JSON.parse(text));
}
