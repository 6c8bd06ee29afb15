import type { NodeInfo } from "@vivarium/contract/node";
import type { NodeClient } from "./node-client.ts";

const FRESH_MS = 2_000;
/** Creates wait for it, and are to be answered within a second. */
const READ_MS = 400;

/** What the node last said about itself, so that creates need no call of their own. */
export class NodeState {
  readonly #nodes: NodeClient;
  #info: NodeInfo | undefined;
  /** By the monotonic clock. In vain counts as well: a node that does not answer is not asked by every create. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<unknown> | undefined;
  #isAway = false;

  constructor(nodes: NodeClient) {
    this.#nodes = nodes;
  }

  /** The last answer, however old; undefined while the node was never reached. */
  get lastKnown(): NodeInfo | undefined {
    return this.#info;
  }

  async refresh(signal?: AbortSignal): Promise<NodeInfo> {
    this.#info = await this.#nodes.info(signal);
    this.#isAway = false;
    this.#askedAt = performance.now();
    return this.#info;
  }

  /** An answer that is at most two seconds old, or the last one when the node is away. */
  async current(): Promise<NodeInfo | undefined> {
    if (performance.now() - this.#askedAt > FRESH_MS) {
      this.#reading ??= this.#read();
      await this.#reading;
    }
    return this.#info;
  }

  /** As `current`, and undefined while the node is away. */
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
