/** Visitors' wishes that a paused session goes on, between the gateway, which waits, and control, which asks for them. */
import type { WakeOutcome } from "@vivarium/contract/gateway";
import type { Wake } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import { NodeError } from "../node-error.ts";

const GATEWAY_WAITS_MS = 30_000;
const CONTROL_WAITS_MS = 20_000;
/** Whoever took a wish may have died with it. */
const TOLD_AGAIN_MS = 10_000;
const MOST_AT_ONCE = 10_000;
const LATER: WakeOutcome = { result: "refused", status: 503, retry_after_s: 5 };

interface Pending {
  wakeId: string;
  sessionId: string;
  /** Milliseconds of `performance.now()`; minus infinity before it was told. */
  toldAt: number;
  outcome: Promise<WakeOutcome>;
  settle: (outcome: WakeOutcome) => void;
}

export class Wakes {
  readonly #bySession = new Map<string, Pending>();
  readonly #askers = new Set<() => void>();
  readonly #closing = new AbortController();

  /** Callers for one session share one wish. */
  ask(sessionId: string, limitMs = GATEWAY_WAITS_MS): Promise<WakeOutcome> {
    const known = this.#bySession.get(sessionId);
    if (known) return known.outcome;
    if (this.#bySession.size >= MOST_AT_ONCE) return Promise.resolve(LATER);
    const { promise: outcome, resolve: settle } = Promise.withResolvers<WakeOutcome>();
    const pending: Pending = {
      wakeId: randomId(),
      sessionId,
      toldAt: Number.NEGATIVE_INFINITY,
      outcome,
      settle,
    };
    this.#bySession.set(sessionId, pending);
    const timer = setTimeout(() => settle(LATER), limitMs);
    void outcome.then(() => {
      clearTimeout(timer);
      if (this.#bySession.get(sessionId) === pending) this.#bySession.delete(sessionId);
    });
    for (const wakeUp of this.#askers) wakeUp();
    return outcome;
  }

  /** Wishes to be told now; waits for one. Returns early, with none, when the signal aborts. */
  async take(signal: AbortSignal, limitMs = CONTROL_WAITS_MS): Promise<Wake[]> {
    const until = AbortSignal.any([signal, this.#closing.signal, AbortSignal.timeout(limitMs)]);
    for (;;) {
      const now = performance.now();
      const due = [...this.#bySession.values()].filter(({ toldAt }) => now - toldAt >= TOLD_AGAIN_MS);
      if (due.length > 0 && !signal.aborted) return due.map((pending) => tell(pending, now));
      if (until.aborted) return [];
      await this.#somethingNew(until);
    }
  }

  answer(wakeId: string, outcome: WakeOutcome): void {
    const pending = [...this.#bySession.values()].find((one) => one.wakeId === wakeId);
    if (!pending) throw new NodeError("wake_not_found", "nobody waits for this wake any more");
    pending.settle(outcome);
  }

  /** Nobody waits any longer for a wish that may come. */
  close(): void {
    this.#closing.abort();
  }

  async #somethingNew(until: AbortSignal): Promise<void> {
    const own = new AbortController();
    const wakeUp = () => own.abort();
    this.#askers.add(wakeUp);
    await sleep(TOLD_AGAIN_MS / 10, AbortSignal.any([until, own.signal]));
    this.#askers.delete(wakeUp);
  }
}

function tell(pending: Pending, now: number): Wake {
  pending.toldAt = now;
  return { wake_id: pending.wakeId, session_id: pending.sessionId };
}
