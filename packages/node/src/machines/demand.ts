/** Demand for each kind of machine, how many are worth having, and whether the host can make one now. Pure. */

/** Time constant of the decay of a request's weight: it halves in about 20 s. */
const FADES_MS = 30_000;
/** Safety factor on the mean number of requests that come while a machine is made: the actual number varies. */
const FACTOR = 3;
/** Time without a request after which no start competes for the processor. */
const QUIET_MS = 1_500;
/** Bounds of the number of idle processors that making a machine requires. */
const CORES_TO_MAKE = { most: 0.5, least: 0.1 };
/** Most machines that are made at once. */
const MOST_AT_ONCE = 4;

export interface Demand {
  /** The weight of all requests, as of `at`. */
  weight: number;
  /** Milliseconds since 1970. */
  at: number;
}

export const NO_DEMAND: Demand = { weight: 0, at: 0 };

/** Adds a request to the demand. */
export function wantedOnceMore(demand: Demand, now: number): Demand {
  return { weight: weightAt(demand, now) + 1, at: now };
}

/** Requests per second. */
export function rateOf(demand: Demand, now: number): number {
  return (weightAt(demand, now) * 1_000) / FADES_MS;
}

const weightAt = ({ weight, at }: Demand, now: number) =>
  weight * Math.exp(-Math.max(0, now - at) / FADES_MS);

/** A source of warm machines, and their number. */
export interface Kind {
  key: string;
  /** Whether the source is a baseline, from which every session may start, or a state that one tenant saved. */
  isBaseline: boolean;
  /** Requests per second. */
  rate: number;
  /** Time to make one machine. */
  makeMs: number;
  /** Memory that one machine may come to use. */
  bytes: number;
  /** Machines that are ready or being made. */
  there: number;
}

interface Bounds {
  /** Fewest machines per kind, however seldom it is wanted. */
  least: number;
  /** Most machines per kind, however often it is wanted. */
  most: number;
  /** Memory for machines that do not exist yet. */
  freeBytes: number;
  /** Most machines of all kinds together. */
  machines: number;
}

/**
 * The keys of all machines worth having, one per machine, the most valuable first. Each baseline gets one machine
 * first, so that a tenant's saved states deprive no one else of a first machine; then each saved state gets one, then
 * every kind its second, and so on. Within a round the most wanted kind comes first. A machine that exists needs no
 * memory.
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

/** The kind of the first machine worth having that does not exist. */
export function lackOf(kinds: readonly Kind[], worth: readonly string[]): Kind | undefined {
  const left = new Map(kinds.map(({ key, there }) => [key, there]));
  const key = worth.find((one) => {
    const there = left.get(one) ?? 0;
    left.set(one, there - 1);
    return there <= 0;
  });
  return kinds.find((kind) => kind.key === key);
}

/** The number of machines worth having: the requests that come while one is made, times a safety factor. */
function countOf({ rate, makeMs }: Kind, { least, most }: Bounds): number {
  return Math.min(most, Math.max(least, Math.ceil((rate * makeMs * FACTOR) / 1_000)));
}

interface Processor {
  cores: number;
  /** Number of processors that were idle lately. */
  idle: number;
}

interface Work {
  /** Time since the last request for a machine. */
  quietMs: number;
  making: number;
  /** The kind to make next. */
  next: Pick<Kind, "rate" | "makeMs">;
}

/**
 * Whether to make one more machine now. The more often its kind is wanted and the longer it takes to make, the more
 * of a processor must be idle. While there are no starts, one at a time is made however busy the host is.
 */
export function mayMake({ cores, idle }: Processor, { quietMs, making, next }: Work): boolean {
  if (making >= Math.min(MOST_AT_ONCE, Math.max(1, Math.floor(cores / 2)))) return false;
  if (quietMs >= QUIET_MS && making === 0) return true;
  const takes = (next.rate * next.makeMs) / 1_000;
  return idle >= Math.min(CORES_TO_MAKE.most, Math.max(CORES_TO_MAKE.least, takes));
}
