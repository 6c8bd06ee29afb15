/**
 * Limits how many wrong credentials of one address are answered with 401 in a minute; further ones get 429. A right
 * credential is never refused for wrong ones, because other clients may share its address. Counts are per process.
 */
import { networkOf, plainAddress } from "@vivarium/http1/peer-limit";
import { ApiError } from "../errors/api-error.ts";
import type { Meter } from "../metrics/meter.ts";

const WINDOW_MS = 60_000;
/** Bounds the memory. Past it, the address that sent a wrong credential least recently starts anew. */
const MOST_ADDRESSES = 10_000;

interface Count {
  wrong: number;
  /** The minute starts with the first wrong credential, on the clock of `performance.now()`. */
  endsAt: number;
}

export class WrongCredentials {
  readonly #perMinute: number;
  readonly #meter: Meter;
  readonly #now: () => number;
  /** By IPv4 address or IPv6 /64, least recently used first. */
  readonly #counts = new Map<string, Count>();

  /** `wrongCredentialsPerMinute`: 0 for no limit. */
  constructor({
    wrongCredentialsPerMinute,
    meter,
    now = () => performance.now(),
  }: {
    wrongCredentialsPerMinute: number;
    meter: Meter;
    now?: () => number;
  }) {
    this.#perMinute = wrongCredentialsPerMinute;
    this.#meter = meter;
    this.#now = now;
  }

  /**
   * Counts a wrong credential of an address, and returns the refusal to answer with: the given one, or a 429. `begins`
   * is set for the first 429 of a minute.
   */
  count(refusal: ApiError, ip: string): { refusal: ApiError; begins: boolean } {
    const counted = this.#perMinute > 0 ? this.#next(networkOf(plainAddress(ip))) : undefined;
    const isOver = counted !== undefined && counted.wrong > this.#perMinute;
    this.#meter.refusedCredential(isOver ? "429" : "401");
    if (!isOver) return { refusal, begins: false };
    const limited = new ApiError(
      "rate_limited",
      `${refusal.message}; your address has sent more than ${this.#perMinute} wrong credentials within a minute`,
      { retryAfterS: Math.ceil((counted.endsAt - this.#now()) / 1000) },
    );
    return { refusal: limited, begins: counted.wrong === this.#perMinute + 1 };
  }

  #next(network: string): Count {
    const now = this.#now();
    const known = this.#counts.get(network);
    const count = known && now < known.endsAt ? known : { wrong: 0, endsAt: now + WINDOW_MS };
    count.wrong++;
    this.#counts.delete(network);
    this.#counts.set(network, count);
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MOST_ADDRESSES && oldest !== undefined) this.#counts.delete(oldest);
    return count;
  }
}
