/** Wake requests of the fake node: visitors came to paused sessions. */
import { type Wake, WakeOutcome } from "@vivarium/contract/node";
import { Refusal, valid } from "./refusal.ts";

const CALLER_WAITS_MS = 20_000;
/** Milliseconds after which an unanswered request is sent again, since its reader may have died with it. */
const RESEND_MS = 10_000;

export class Wakes {
  readonly outcomes = new Map<string, WakeOutcome>();
  readonly #pending = new Map<string, { wake: Wake; sentAt: number }>();
  readonly #askers = new Set<() => void>();

  visit(wakeId: string, sessionId: string): void {
    const wake = { wake_id: wakeId, session_id: sessionId };
    this.#pending.set(wakeId, { wake, sentAt: Number.NEGATIVE_INFINITY });
    for (const recheck of this.#askers) recheck();
  }

  /** Requests that are due; waits for one for at most 20 s, or until the caller disconnects. */
  async take(gone: AbortSignal): Promise<Wake[]> {
    const until = AbortSignal.any([gone, AbortSignal.timeout(CALLER_WAITS_MS)]);
    for (;;) {
      const now = performance.now();
      const due = [...this.#pending.values()].filter(({ sentAt }) => now - sentAt >= RESEND_MS);
      if (due.length > 0 && !gone.aborted) return due.map((one) => markSent(one, now));
      if (until.aborted) return [];
      await this.#untilChanged(until);
    }
  }

  answer(wakeId: string, body: unknown): void {
    const outcome = valid(WakeOutcome.safeParse(body));
    if (!this.#pending.delete(wakeId))
      throw new Refusal("wake_not_found", "nobody waits for this wake any more");
    this.outcomes.set(wakeId, outcome);
  }

  async #untilChanged(until: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, RESEND_MS / 10);
    const recheck = () => resolve();
    this.#askers.add(recheck);
    until.addEventListener("abort", recheck, { once: true });
    await promise;
    clearTimeout(timer);
    until.removeEventListener("abort", recheck);
    this.#askers.delete(recheck);
  }
}

function markSent(pending: { wake: Wake; sentAt: number }, now: number): Wake {
  pending.sentAt = now;
  return pending.wake;
}
