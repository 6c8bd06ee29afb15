/**
 * How often something was wanted lately, how many of it are worth having ready, and whether the processor has room to make
 * one now. Pure.
 */

/** What was wanted weighs less the longer ago it was: half after some twenty seconds. */
const FADES_MS = 30_000;
/** Wants do not come evenly: what is wanted while one is made is not always the mean. */
const FACTOR = 3;
/** Nobody waits for the processor that nobody asked for a machine for so long. */
const QUIET_MS = 1_500;
/** Idle processors that making one wants at most, and at least. */
const CORES_TO_MAKE = { most: 0.5, least: 0.1 };
const MOST_AT_ONCE = 4;

export interface Demand {
  /** How often it was wanted, as it weighed at `at`. */
  weight: number;
  /** Milliseconds since 1970. */
  at: number;
}

export const NO_DEMAND: Demand = { weight: 0, at: 0 };

export function wantedOnceMore(demand: Demand, now: number): Demand {
  return { weight: weightAt(demand, now) + 1, at: now };
}

/** Wants per second. */
export function rateOf(demand: Demand, now: number): number {
  return (weightAt(demand, now) * 1_000) / FADES_MS;
}

const weightAt = ({ weight, at }: Demand, now: number) =>
  weight * Math.exp(-Math.max(0, now - at) / FADES_MS);

/** What machines can be made of ahead. */
export interface Kind {
  key: string;
  /** Made of what everybody starts from, not of a state that one tenant saved. */
  isBaseline: boolean;
  /** Wants per second. */
  rate: number;
  /** How long it takes to make one. */
  makeMs: number;
  /** Memory that one may come to use. */
  bytes: number;
  /** Ready, or being made. */
  there: number;
}

interface Bounds {
  /** Of each kind, however seldom it is wanted. */
  least: number;
  /** Of each kind, however often it is wanted. */
  most: number;
  /** Memory for those that are not there yet. */
  freeBytes: number;
  /** Of all kinds together. */
  machines: number;
}

/**
 * The keys of all machines that are worth having, each as often as it is, first what is worth most: one of each baseline,
 * so that no tenant's saved states keep everybody else from a first machine; then one of each saved state; then the second
 * of any, and so on. Within a round what is asked for most comes first. What is there already needs no memory.
 */
export function worthHaving(kinds: readonly Kind[], bounds: Bounds): string[] {
  const wanted = kinds.map((kind) => ({ ...kind, count: countOf(kind, bounds) }));
  const byRate = wanted.toSorted((a, b) => b.rate - a.rate);
  const baselinesFirst = byRate.toSorted((a, b) => Number(b.isBaseline) - Number(a.isBaseline));
  const rounds = Math.max(0, ...wanted.map(({ count }) => count));
  const keys: string[] = [];
  let { freeBytes } = bounds;
  for (let round = 0; round < rounds; round++)
    for (const { key, count, there, bytes } of round === 0 ? baselinesFirst : byRate) {
      const isThere = round < there;
      if (round >= count || keys.length >= bounds.machines || (!isThere && bytes > freeBytes)) continue;
      if (!isThere) freeBytes -= bytes;
      keys.push(key);
    }
  return keys;
}

/** What is not there, though it is worth having: the first of it. */
export function lackOf(kinds: readonly Kind[], worth: readonly string[]): Kind | undefined {
  const left = new Map(kinds.map(({ key, there }) => [key, there]));
  const key = worth.find((one) => {
    const there = left.get(one) ?? 0;
    left.set(one, there - 1);
    return there <= 0;
  });
  return kinds.find((kind) => kind.key === key);
}

/** As many as are wanted while one is made, and more for chance. */
function countOf({ rate, makeMs }: Kind, { least, most }: Bounds): number {
  return Math.min(most, Math.max(least, Math.ceil((rate * makeMs * FACTOR) / 1_000)));
}

interface Processor {
  cores: number;
  /** How many of them were idle lately. */
  idle: number;
}

interface Work {
  /** Since somebody wanted a machine. */
  quietMs: number;
  /** Being made. */
  making: number;
  /** Wants per second, and what one takes to make: of what is to be made next. */
  next: Pick<Kind, "rate" | "makeMs">;
}

/**
 * Whether to begin with one more. Making what is wanted often takes a large part of a processor, or, where one is made
 * quickly, a small one: as much has to be idle. Once nobody starts machines, one at a time is made however busy the host is.
 */
export function mayMake({ cores, idle }: Processor, { quietMs, making, next }: Work): boolean {
  if (making >= Math.min(MOST_AT_ONCE, Math.max(1, Math.floor(cores / 2)))) return false;
  if (quietMs >= QUIET_MS && making === 0) return true;
  const takes = (next.rate * next.makeMs) / 1_000;
  return idle >= Math.min(CORES_TO_MAKE.most, Math.max(CORES_TO_MAKE.least, takes));
}
