import type { NodeInfo } from "@vivarium/contract/node";
import type { NodeClient } from "./node-client.ts";

const FRESH_MS = 2_000;

/** What the node last said about itself, so that creates need no call of their own. */
export class NodeState {
  readonly #nodes: NodeClient;
  #info: NodeInfo | undefined;
  #readAt = 0;

  constructor(nodes: NodeClient) {
    this.#nodes = nodes;
  }

  /** The last answer, however old; undefined while the node was never reached. */
  get lastKnown(): NodeInfo | undefined {
    return this.#info;
  }

  async refresh(signal?: AbortSignal): Promise<NodeInfo> {
    this.#info = await this.#nodes.info(signal);
    this.#readAt = Date.now();
    return this.#info;
  }

  /** An answer that is at most two seconds old, or the last one when the node is away. */
  async current(): Promise<NodeInfo | undefined> {
    if (Date.now() - this.#readAt > FRESH_MS)
      await this.refresh(AbortSignal.timeout(500)).catch(() => undefined);
    return this.#info;
  }
}
