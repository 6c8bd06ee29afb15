/** The routes of this node's previews, as control last sent them. Forgotten with the process. */
import type { PreviewTable } from "@vivarium/contract/node";
import { NodeError } from "../node-error.ts";
import type { GatewayLink } from "./gateway-link.ts";

const CONFIRM_MS = 5_000;

export class Previews {
  #table: PreviewTable = { version: 0, routes: [] };
  /** Version of the gateway's tables that first had them. */
  #published = 0;

  get version(): number {
    return this.#table.version;
  }

  get routes() {
    return this.#table.routes;
  }

  /** In force at the gateway when this returns. The same table again waits for the same confirmation. */
  async replace(link: GatewayLink, table: PreviewTable): Promise<void> {
    if (table.version < this.version) {
      throw new NodeError(
        "network_conflict",
        `previews of version ${table.version} came after ${this.version}`,
      );
    }
    if (table.version > this.version) {
      this.#table = table;
      this.#published = link.publish();
    }
    if (await link.confirmed(this.#published, CONFIRM_MS)) return;
    throw new NodeError(
      "network_unconfirmed",
      "the gateway did not confirm the previews in time; they are kept",
    );
  }
}
