import { MIB } from "@vivarium/kit/sizes";
import { describe, expect, it } from "vitest";
import {
  type Demand,
  type Kind,
  lackOf,
  mayMake,
  NO_DEMAND,
  rateOf,
  wantedOnceMore,
  worthHaving,
} from "./demand.ts";

const NOW = 1_700_000_000_000;
const SECOND = 1_000;

describe("demand", () => {
  /** `times` requests, `apart` ms apart, the last one now. */
  const wanted = (times: number, everyMs: number): Demand =>
    Array.from({ length: times }, (_, i) => NOW - (times - 1 - i) * everyMs).reduce(
      wantedOnceMore,
      NO_DEMAND,
    );

  it("approaches a steady rate of requests, per second, within two minutes", () => {
    expect(rateOf(wanted(60, 2 * SECOND), NOW)).toBeCloseTo(0.5, 1);
    expect(rateOf(wanted(600, 200), NOW)).toBeCloseTo(5, 0);
  });

  it("decays once requests stop", () => {
    const stream = wanted(60, SECOND);
    const rates = [0, 20, 60, 300].map((seconds) => rateOf(stream, NOW + seconds * SECOND));
    expect(rates[0]).toBeGreaterThan(0.8);
    expect(rates[1]).toBeLessThan(0.6);
    expect(rates[2]).toBeLessThan(0.15);
    expect(rates[3]).toBeLessThan(0.001);
  });

  it("does not drop if the clock was set back", () => {
    const stream = wanted(60, SECOND);
    expect(rateOf(stream, NOW - 3_600 * SECOND)).toBe(rateOf(stream, NOW));
  });

  it("is zero without a request, and nearly zero after one", () => {
    expect(rateOf(NO_DEMAND, NOW)).toBe(0);
    expect(rateOf(wanted(1, 0), NOW)).toBeLessThan(0.05);
  });
});

describe("the machines worth making", () => {
  const kind = (key: string, rate: number, more: Partial<Kind> = {}): Kind => ({
    ...{ key, isBaseline: true, rate, makeMs: 1_500, bytes: 1024 * MIB, there: 0 },
    ...more,
  });
  const saved = (key: string, rate: number) => kind(key, rate, { isBaseline: false });
  const MUCH = { least: 1, most: 8, freeBytes: 64 * 1024 * MIB, machines: 100 };

  it("are one of each kind that is wanted seldom", () => {
    expect(worthHaving([kind("base", 0), kind("other", 0.03)], MUCH)).toEqual(["other", "base"]);
  });

  it("are more, the more often a kind is wanted and the longer it takes to make", () => {
    const count = (rate: number, makeMs: number) =>
      worthHaving([kind("base", rate, { makeMs })], MUCH).length;
    expect([0.03, 0.25, 0.5, 1].map((rate) => count(rate, 1_500))).toEqual([1, 2, 3, 5]);
    expect([150, 300, 600].map((makeMs) => count(2, makeMs))).toEqual([1, 2, 4]);
  });

  it("are never more of a kind than the operator's maximum, nor fewer than the minimum", () => {
    expect(worthHaving([kind("base", 100)], MUCH)).toHaveLength(8);
    expect(worthHaving([kind("base", 0)], { ...MUCH, least: 3 })).toHaveLength(3);
    expect(worthHaving([kind("base", 100)], { ...MUCH, least: 0, most: 0 })).toEqual([]);
  });

  it("start with one of each kind, the most wanted first, and continue with the most wanted", () => {
    const kinds = [kind("base", 0.25), kind("seldom", 0.01), kind("often", 0.5)];
    expect(worthHaving(kinds, MUCH)).toEqual(["often", "base", "seldom", "often", "base", "often"]);
    expect(worthHaving(kinds, { ...MUCH, machines: 4 })).toEqual(["often", "base", "seldom", "often"]);
  });

  it("put each baseline before the first machine of a saved state, then order by demand", () => {
    const kinds = [
      saved("theirs", 0.5),
      kind("seldom", 0),
      saved("more of theirs", 0.25),
      kind("base", 0.01),
    ];
    expect(worthHaving(kinds, MUCH)).toEqual([
      ...["base", "seldom", "theirs", "more of theirs"],
      ...["theirs", "more of theirs", "theirs"],
    ]);
    const eight = Array.from({ length: 8 }, (_, i) => saved(`theirs ${i}`, 0.5));
    const first = (bounds: object) => worthHaving([...eight, kind("base", 0)], { ...MUCH, ...bounds })[0];
    expect([first({ machines: 8 }), first({ freeBytes: 2048 * MIB })]).toEqual(["base", "base"]);
  });

  it("are limited by memory; machines that exist need none", () => {
    const free = (mib: number) => ({ ...MUCH, freeBytes: mib * MIB });
    expect(worthHaving([kind("base", 0.5)], free(2047))).toEqual(["base"]);
    expect(worthHaving([kind("base", 0.5, { there: 2 })], free(0))).toEqual(["base", "base"]);
    expect(worthHaving([kind("base", 0.5, { there: 2 })], free(-4096))).toEqual(["base", "base"]);
    expect(worthHaving([kind("base", 0.5, { there: 2 })], free(1024))).toHaveLength(3);
  });

  it("skip a kind that is too large, but not the kinds after it", () => {
    const kinds = [kind("large", 1, { bytes: 8192 * MIB }), kind("base", 0)];
    expect(worthHaving(kinds, { ...MUCH, freeBytes: 2048 * MIB })).toEqual(["base"]);
  });
});

describe("the next machine to make", () => {
  const kindOf = (key: string, there: number) => ({
    ...{ key, there, isBaseline: true, rate: 0, makeMs: 0, bytes: 0 },
  });

  it("is the first of the list that does not exist yet", () => {
    const kinds = [kindOf("a", 1), kindOf("b", 1), kindOf("c", 0)];
    expect(lackOf(kinds, ["a", "b", "c", "a"])?.key).toBe("c");
    expect(lackOf(kinds, ["a", "b", "a", "c"])?.key).toBe("a");
  });

  it("is undefined if all of them exist, or more", () => {
    expect(lackOf([kindOf("a", 2)], ["a", "a"])).toBeUndefined();
    expect(lackOf([kindOf("a", 3)], ["a"])).toBeUndefined();
  });
});

describe("the processor has capacity to make a machine", () => {
  const busy = { quietMs: 200, making: 0, next: { rate: 0.5, makeMs: 1_500 } };

  it("while machines are started, if half a core is idle", () => {
    expect(mayMake({ cores: 2, idle: 0.5 }, busy)).toBe(true);
    expect(mayMake({ cores: 2, idle: 0.49 }, busy)).toBe(false);
  });

  it("with less idle, if a machine is made quickly or is seldom wanted", () => {
    const quick = { ...busy, next: { rate: 1, makeMs: 150 } };
    expect(mayMake({ cores: 2, idle: 0.15 }, quick)).toBe(true);
    expect(mayMake({ cores: 2, idle: 0.14 }, quick)).toBe(false);
    expect(mayMake({ cores: 2, idle: 0.09 }, { ...busy, next: { rate: 0, makeMs: 150 } })).toBe(false);
  });

  it("however busy the host is, once no machine was started for a while: one at a time", () => {
    expect(mayMake({ cores: 4, idle: 0 }, { ...busy, quietMs: 1_500 })).toBe(true);
    expect(mayMake({ cores: 4, idle: 0 }, { ...busy, quietMs: 1_499 })).toBe(false);
    expect(mayMake({ cores: 4, idle: 0 }, { ...busy, quietMs: 1_500, making: 1 })).toBe(false);
  });

  it("on half of the cores at once, four at most", () => {
    const most = (cores: number) =>
      [0, 1, 2, 3, 4, 5].filter((making) => mayMake({ cores, idle: cores }, { ...busy, making })).length;
    expect([1, 2, 4, 8, 96].map(most)).toEqual([1, 1, 2, 4, 4]);
  });
});

describe("on two cores, where making a machine takes a core for a second and a half,", () => {
  const STEP = 50;
  const CORES = 2;

  /**
   * A simulation of the pool in its own time. A run takes 1.3 cores for 0.3 s with a warm machine, 1 core for 1.1 s
   * without.
   */
  function shareReady(everyMs: number, wants = 60): number {
    let [ready, found, demand, last, made] = [1, 0, NO_DEMAND, NOW, 0];
    let making = false;
    let lookAt = NOW;
    const idle: number[] = [];
    const runs: { until: number; cores: number }[] = [];
    for (let now = NOW, i = 0; i < wants; now += STEP) {
      if (now >= NOW + i * everyMs) {
        i++;
        demand = wantedOnceMore(demand, now);
        last = now;
        lookAt = Math.min(lookAt, now + 200);
        runs.push(ready > 0 ? { until: now + 300, cores: 1.3 } : { until: now + 1_100, cores: 1 });
        if (ready > 0) found++;
        ready = Math.max(0, ready - 1);
      }
      const used = runs.filter(({ until }) => until > now).reduce((sum, { cores }) => sum + cores, 0);
      const left = Math.max(0, CORES - used);
      if (making) made += STEP * Math.min(1, Math.max(left, CORES / (used + 1)));
      idle.push(Math.max(0, left - Number(making)));
      if (making && made >= 1_500) {
        ready++;
        [making, made, lookAt] = [false, 0, now];
      }
      if (now < lookAt) continue;
      const kind = { key: "base", isBaseline: true, rate: rateOf(demand, now), makeMs: 1_500, bytes: 0 };
      const kinds = [{ ...kind, there: ready + Number(making) }];
      const worth = worthHaving(kinds, { least: 1, most: 8, freeBytes: 0, machines: 100 });
      const next = lackOf(kinds, worth);
      const processor = { cores: CORES, idle: idle.reduce((sum, one) => sum + one, 0) / idle.length };
      if (next && mayMake(processor, { quietMs: now - last, making: Number(making), next })) making = true;
      idle.length = 0;
      lookAt = now + (next ? 250 : 5_000);
    }
    return found / wants;
  }

  it("nine of ten runs find a warm machine at one run every two seconds", () => {
    expect(shareReady(2_000)).toBeGreaterThanOrEqual(0.9);
    expect(shareReady(5_000)).toBe(1);
  });

  it("a rate above what can be made gets those that can, and making them takes no processor time from runs", () => {
    expect(shareReady(1_000)).toBeGreaterThan(0.3);
    expect(shareReady(250)).toBeLessThan(0.1);
  });
});
