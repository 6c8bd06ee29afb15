import { WakeOutcome } from "@vivarium/contract/gateway";
import type { Log } from "@vivarium/kit/log";
import type { NodeClient } from "./node-client.ts";

/** The node answers after at most 30 s. */
const WAKE_MS = 35_000;
const RETRY_AFTER_S = 2;

/** Asks the node to wake sessions. All visitors of one session share one call. */
export class Wakes {
  readonly #deps: { node: NodeClient; log: Log };
  readonly #underWay = new Map<string, Promise<WakeOutcome>>();

  constructor(deps: { node: NodeClient; log: Log }) {
    this.#deps = deps;
  }

  wake(sessionId: string): Promise<WakeOutcome> {
    const known = this.#underWay.get(sessionId);
    if (known) return known;
    const wake = this.#ask(sessionId).finally(() => this.#underWay.delete(sessionId));
    this.#underWay.set(sessionId, wake);
    return wake;
  }

  async #ask(sessionId: string): Promise<WakeOutcome> {
    try {
      const { status, body } = await this.#deps.node.post("/v1/wakes", { session_id: sessionId }, WAKE_MS);
      if (status === 200) return WakeOutcome.parse(body);
      throw new Error(`the node answered ${status}`);
    } catch (error) {
      this.#deps.log.warn({ err: error, session: sessionId }, "a wake could not be asked for");
      return { result: "refused", status: 503, retry_after_s: RETRY_AFTER_S };
    }
  }
}
