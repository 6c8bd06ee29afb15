/**
 * Resolves names, for answers to guests and for the connections that the gateway makes for them. Results are cached per
 * machine: with a shared cache, the time of an answer would show a machine what others asked for.
 */
import type { Log } from "@vivarium/kit/log";
import type { CurrentTables } from "../tables/current-tables.ts";
import { PerMachine } from "../tables/per-machine.ts";
import { answerLimitMs, askUpstream } from "./ask-upstream.ts";
import { TYPE, writeQuestion } from "./question.ts";
import { readAddresses } from "./read-addresses.ts";

export const MIN_TTL_S = 30;
const MAX_TTL_S = 300;
const MAX_ADDRESSES = 4;
/** Questions to name servers for one name, each for a further alias. */
const MAX_QUESTIONS = 4;
const MAX_NAMES = 1024;
const MAX_UNDER_WAY = 64;

export type Resolution =
  | { result: "found"; addresses: string[]; ttlS: number }
  /** One of the name's addresses is forbidden: the whole name is refused. */
  | { result: "never"; addresses: string[] }
  /** The name does not exist or has no address: `rcode`, the name server's response code, says which. */
  | { result: "none"; rcode: number }
  | { result: "failed" };

type Found = Exclude<Resolution, { result: "never" }>;

interface Known {
  kept: Map<string, { found: Found; until: number }>;
  underWay: Map<string, Promise<Found>>;
  /** Number of questions in flight whose answers are not cached. */
  passing: number;
}

export interface ResolverDeps {
  tables: CurrentTables;
  log: Log;
  /** Time limit for each question to a name server, in milliseconds. */
  attemptMs?: number;
}

export class Resolver {
  readonly #deps: ResolverDeps;
  readonly #known: PerMachine<Known>;
  #resolvers = "";

  constructor(deps: ResolverDeps) {
    this.#deps = deps;
    this.#known = new PerMachine(deps.tables, () => ({ kept: new Map(), underWay: new Map(), passing: 0 }));
    deps.tables.subscribe(() => this.#forgetWithResolvers());
  }

  /** The addresses, cached ones too, are checked against the current forbidden ranges. */
  async resolve(machineId: string, name: string): Promise<Resolution> {
    const found = await this.#find(this.#known.of(machineId), name);
    if (found.result !== "found") return found;
    if (found.addresses.some((address) => this.#deps.tables.isNever(address))) {
      return { result: "never", addresses: found.addresses.slice(0, MAX_ADDRESSES) };
    }
    return { ...found, addresses: found.addresses.slice(0, MAX_ADDRESSES) };
  }

  /** Resolves to a name server's unchanged answer. Rejects without one, or with too many questions in flight. */
  async ask(machineId: string, question: Buffer): Promise<Buffer> {
    const known = this.#known.of(machineId);
    if (known.passing + known.underWay.size >= MAX_UNDER_WAY)
      throw new Error("too many questions are under way");
    known.passing += 1;
    try {
      return await askUpstream(this.#deps.tables.resolvers(), question, this.#deps.attemptMs);
    } finally {
      known.passing -= 1;
    }
  }

  async #find(known: Known, name: string): Promise<Found> {
    const kept = known.kept.get(name);
    if (kept && kept.until > performance.now()) return withTtl(kept.found, kept.until);
    const underWay = known.underWay.get(name);
    if (underWay !== undefined) return underWay;
    if (known.passing + known.underWay.size >= MAX_UNDER_WAY) return { result: "failed" };
    const search = this.#search(name).finally(() => known.underWay.delete(name));
    known.underWay.set(name, search);
    const found = await search;
    if (found.result === "found") keep(known, name, found);
    return found;
  }

  /** Asks for the last alias when the name server has not followed it to an address. */
  async #search(name: string): Promise<Found> {
    let asked = name;
    let ttlS = MAX_TTL_S;
    const { attemptMs } = this.#deps;
    const until = performance.now() + answerLimitMs(attemptMs);
    try {
      for (let questions = 0; questions < MAX_QUESTIONS; questions += 1) {
        const question = writeQuestion(asked, TYPE.A);
        const answer = await askUpstream(this.#deps.tables.resolvers(), question, attemptMs, until);
        const { addresses, end, ttlS: least } = readAddresses(answer, asked);
        ttlS = Math.min(ttlS, least);
        if (addresses.length > 0) return { result: "found", addresses, ttlS: Math.max(ttlS, MIN_TTL_S) };
        if (end === asked) return { result: "none", rcode: answer.readUInt16BE(2) & 0xf };
        asked = end;
      }
      return { result: "failed" };
    } catch (error) {
      this.#deps.log.debug({ err: error }, "a name could not be resolved");
      return { result: "failed" };
    }
  }

  #forgetWithResolvers(): void {
    const resolvers = this.#deps.tables.resolvers().join(" ");
    if (resolvers !== this.#resolvers) this.#known.clear();
    this.#resolvers = resolvers;
  }
}

function keep(known: Known, name: string, found: Found & { result: "found" }): void {
  known.kept.delete(name);
  known.kept.set(name, { found, until: performance.now() + found.ttlS * 1000 });
  const oldest = known.kept.keys().next().value;
  if (known.kept.size > MAX_NAMES && oldest !== undefined) known.kept.delete(oldest);
}

function withTtl(found: Found, until: number): Found {
  if (found.result !== "found") return found;
  const left = Math.ceil((until - performance.now()) / 1000);
  return { ...found, ttlS: Math.max(left, MIN_TTL_S) };
}
