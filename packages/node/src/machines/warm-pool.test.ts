import { sleep } from "@vivarium/kit/clock";
import { createLog } from "@vivarium/kit/log";
import { GIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { WarmPool, type WarmPoolDeps } from "./warm-pool.ts";

const SECOND = 1_000;
const MAKE_MS = 1_500;
const BASE = { dir: "/images/base", manifest: { template: "base", size: "small", mem_mb: 1024 } };
const baselineAt = (dir: string) => (dir === BASE.dir ? BASE : undefined);
const SEALED = {
  dir: "/snapshots/sealed",
  manifest: { template: "sealed", size: "small", mem_mb: 1024, sealed: { key_id: "1", label: "chk_1" } },
};
const SAVED = { dir: "/snapshots/theirs", manifest: { template: "theirs", size: "small", mem_mb: 1024 } };

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A pool that only counts the machines it makes, on a host with this much free memory. */
function poolWith(config: { warmMachines: number; maxWarmMachines: number }, machines = 0) {
  const host = { freeBytes: 64 * GIB, there: 0, machines, made: [] as string[] };
  const deps = {
    config: { ...config, maxMachines: 10 },
    baselines: { get: () => BASE, at: baselineAt, atToLoad: async (dir: string) => baselineAt(dir) },
    snapshots: {
      idOf: (dir: string) => [SAVED, SEALED].find((one) => one.dir === dir)?.manifest.template,
      check: async (id: string) => (id === "sealed" ? SEALED : SAVED),
    },
    table: {
      get count() {
        return host.machines;
      },
    },
    log: createLog("test", "error"),
    freeBytes: () => host.freeBytes,
    make: async (_deps: WarmPoolDeps, { manifest: { template } }: typeof BASE) => {
      await sleep(MAKE_MS);
      host.there++;
      host.made.push(template);
      return {
        ...{ id: "warm", template, size: "small", hasRun: false, agent: { close() {} } },
        qmp: { isClosed: false, execute: async () => {} },
        undo: { unwind: async () => void host.there-- },
      };
    },
  } as unknown as WarmPoolDeps;
  const pool = new WarmPool(deps, ["base"]);
  const stopping = new AbortController();
  const done = pool.run(stopping.signal);
  const stop = async () => {
    stopping.abort();
    await vi.runAllTimersAsync();
    await done;
  };
  const pass = (seconds: number) => vi.advanceTimersByTimeAsync(seconds * SECOND);
  const takeFor = async (seconds: number) => {
    for (let i = 0; i < seconds; i++) {
      if (pool.take(BASE.dir)) host.there--;
      await pass(1);
    }
  };
  return { pool, host, stop, pass, takeFor };
}

const base = (ready: number, wanted: number) => ({ template: "base", size: "small", ready, wanted });

it("keeps one machine without a request, more while requests are frequent, and one again some minutes later", async () => {
  const { pool, host, stop, pass, takeFor } = poolWith({ warmMachines: 1, maxWarmMachines: 8 });
  await pass(10);
  expect(pool.counts).toEqual([base(1, 1)]);
  await takeFor(30);
  expect(pool.counts[0]?.wanted).toBeGreaterThanOrEqual(3);
  await pass(10);
  const [{ ready = 0, wanted = 0 } = {}] = pool.counts;
  expect(ready).toBeGreaterThanOrEqual(2);
  expect(ready).toBeGreaterThanOrEqual(wanted);
  expect(pool.starts.from_pool + pool.starts.loaded).toBe(30);
  await pass(180);
  expect([pool.counts, host.there]).toEqual([[base(1, 1)], 1]);
  await stop();
  expect(host.there).toBe(0);
});

it("keeps no more than the operator allows, and none if none are allowed", async () => {
  const one = poolWith({ warmMachines: 1, maxWarmMachines: 1 });
  await one.takeFor(30);
  expect(one.pool.counts[0]?.wanted).toBe(1);
  await one.stop();
  const none = poolWith({ warmMachines: 0, maxWarmMachines: 0 });
  await none.takeFor(30);
  await none.pass(60);
  expect([none.pool.counts[0]?.wanted, none.host.there]).toEqual([0, 0]);
  await none.stop();
});

it("keeps no more than may still be started, plus one for the start that replaces a machine that ends", async () => {
  const { pool, stop, takeFor } = poolWith({ warmMachines: 3, maxWarmMachines: 8 }, 8);
  await takeFor(10);
  expect(pool.counts[0]?.wanted).toBe(2);
  await stop();
  const full = poolWith({ warmMachines: 3, maxWarmMachines: 8 }, 10);
  await full.takeFor(10);
  expect(full.pool.counts[0]?.wanted).toBe(1);
  await full.stop();
});

it("makes none without spare memory, and ends warm machines once memory is short", async () => {
  const { host, stop, pass } = poolWith({ warmMachines: 3, maxWarmMachines: 8 });
  await pass(30);
  expect(host.there).toBe(3);
  host.freeBytes = 2 * GIB;
  await pass(60);
  expect(host.there).toBe(3);
  host.freeBytes = GIB - 1;
  await pass(30);
  expect(host.there).toBe(0);
  host.freeBytes = 3 * GIB - 1;
  await pass(30);
  expect(host.there).toBe(0);
  host.freeBytes = 3 * GIB;
  await pass(30);
  expect(host.there).toBeGreaterThan(0);
  await stop();
});

it("makes one of each baseline before any of a saved state, however often the saved state is wanted", async () => {
  const { pool, host, stop, pass } = poolWith({ warmMachines: 1, maxWarmMachines: 8 });
  host.freeBytes = 2 * GIB;
  for (let i = 0; i < 10; i++) {
    pool.take(SAVED.dir);
    await pass(2);
  }
  expect(host.made).toEqual([]);
  host.freeBytes = 64 * GIB;
  await pass(30);
  expect(host.made.slice(0, 2)).toEqual(["base", "theirs"]);
  await stop();
});

it("makes none of a sealed state, whose key it does not have, however often it is wanted", async () => {
  const { pool, host, stop, pass } = poolWith({ warmMachines: 1, maxWarmMachines: 8 });
  for (let i = 0; i < 10; i++) {
    pool.take(SEALED.dir);
    await pass(2);
  }
  await pass(30);
  expect(host.made).toContain("base");
  expect(host.made).not.toContain("sealed");
  await stop();
});
