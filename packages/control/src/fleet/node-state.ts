/** Caches the node's last report about itself, so that creates need no call of their own. */
import type { NodeInfo } from "@vivarium/contract/node";
import type { NodeClient } from "./node-client.ts";

const FRESH_MS = 2_000;
/** Time limit of a read: creates wait for it, and must be answered within a second. */
const READ_MS = 400;

export class NodeState {
  readonly #nodes: NodeClient;
  #info: NodeInfo | undefined;
  /** Monotonic time of the last read, also of a failed one, so that creates do not all wait for a node that is down. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<unknown> | undefined;
  #isAway = false;
  /** Numbers of the read that began last, and of the one whose answer is kept. */
  #lastRead = 0;
  #keptRead = 0;

  constructor(nodes: NodeClient) {
    this.#nodes = nodes;
  }

  /** The last report, however old. Undefined if the node was never reached. */
  get lastKnown(): NodeInfo | undefined {
    return this.#info;
  }

  async refresh(signal?: AbortSignal): Promise<NodeInfo> {
    const read = ++this.#lastRead;
    const info = await this.#nodes.info(signal);
    // Reads overlap: the answer to one that began later is the newer one, whichever comes last.
    if (read < this.#keptRead) return info;
    this.#keptRead = read;
    this.#info = info;
    this.#isAway = false;
    this.#askedAt = performance.now();
    return info;
  }

  /** A report of the last two seconds, or the last one if the node is down. */
  async current(): Promise<NodeInfo | undefined> {
    if (performance.now() - this.#askedAt > FRESH_MS) {
      this.#reading ??= this.#read();
      await this.#reading;
    }
    return this.#info;
  }

  /** Like `current`, but undefined while the node is down. */
  async present(): Promise<NodeInfo | undefined> {
    const info = await this.current();
    return this.#isAway ? undefined : info;
  }

  async #read(): Promise<void> {
    await this.refresh(AbortSignal.timeout(READ_MS)).catch(() => {
      this.#isAway = true;
    });
    this.#askedAt = performance.now();
    this.#reading = undefined;
  }
}
