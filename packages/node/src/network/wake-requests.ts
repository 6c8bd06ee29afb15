/** Passes wake requests of visitors on to control, which polls for them, while the gateway waits for the outcome. */
import type { WakeOutcome } from "@vivarium/contract/gateway";
import type { Wake } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import { NodeError } from "../node-error.ts";

const GATEWAY_WAITS_MS = 30_000;
const CONTROL_WAITS_MS = 20_000;
/** Time after which a request is sent to control again, because the control process that got it may have died. */
const RESEND_MS = 10_000;
const MAX_PENDING = 10_000;
const LATER: WakeOutcome = { result: "refused", status: 503, retry_after_s: 5 };

interface Pending extends PromiseWithResolvers<WakeOutcome> {
  wake: Wake;
  /** When control last got the request, in milliseconds of `performance.now()`. */
  sentAt: number;
}

export class WakeRequests {
  readonly #bySession = new Map<string, Pending>();
  readonly #waiting = new Set<() => void>();
  readonly #closing = new AbortController();

  /** Requests a wake and resolves to its outcome. Concurrent calls for one session share a request. */
  ask(sessionId: string, limitMs = GATEWAY_WAITS_MS): Promise<WakeOutcome> {
    const known = this.#bySession.get(sessionId);
    if (known) return known.promise;
    if (this.#bySession.size >= MAX_PENDING) return Promise.resolve(LATER);
    const wake: Wake = { wake_id: randomId(), session_id: sessionId };
    const pending: Pending = { wake, sentAt: Number.NEGATIVE_INFINITY, ...Promise.withResolvers() };
    this.#bySession.set(sessionId, pending);
    const timer = setTimeout(() => pending.resolve(LATER), limitMs);
    void pending.promise.then(() => {
      clearTimeout(timer);
      if (this.#bySession.get(sessionId) === pending) this.#bySession.delete(sessionId);
    });
    for (const wakeUp of this.#waiting) wakeUp();
    return pending.promise;
  }

  /** Resolves to the requests to send to control, once there is one; empty after the limit or when the signal aborts. */
  async take(signal: AbortSignal, limitMs = CONTROL_WAITS_MS): Promise<Wake[]> {
    const until = AbortSignal.any([signal, this.#closing.signal, AbortSignal.timeout(limitMs)]);
    for (;;) {
      const now = performance.now();
      const due = [...this.#bySession.values()].filter(({ sentAt }) => now - sentAt >= RESEND_MS);
      if (due.length > 0 && !signal.aborted) {
        for (const pending of due) pending.sentAt = now;
        return due.map(({ wake }) => wake);
      }
      if (until.aborted) return [];
      await this.#newRequest(until);
    }
  }

  answer(wakeId: string, outcome: WakeOutcome): void {
    const pending = [...this.#bySession.values()].find(({ wake }) => wake.wake_id === wakeId);
    if (!pending) throw new NodeError("wake_not_found", "nobody waits for this wake any more");
    pending.resolve(outcome);
  }

  /** Ends every wait of `take`. */
  close(): void {
    this.#closing.abort();
  }

  async #newRequest(until: AbortSignal): Promise<void> {
    const own = new AbortController();
    const wakeUp = () => own.abort();
    this.#waiting.add(wakeUp);
    await sleep(RESEND_MS / 10, AbortSignal.any([until, own.signal]));
    this.#waiting.delete(wakeUp);
  }
}
