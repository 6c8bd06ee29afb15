/** The routes of this node's previews, as control last sent them; they outlive the process. */
import { isDeepStrictEqual } from "node:util";
import type { PreviewTable } from "@vivarium/contract/node";
import { NodeError } from "../node-error.ts";
import type { GatewayLink } from "./gateway-link.ts";

const CONFIRM_MS = 5_000;
/** The gateway's first tables have what was kept. */
const FIRST = 1;

export interface PreviewsInit {
  /** What an earlier process kept. */
  table?: PreviewTable | undefined;
  /** The table outlives the process when this returns. */
  keep?: (table: PreviewTable) => Promise<void>;
}

export class Previews {
  readonly #keep: (table: PreviewTable) => Promise<void>;
  #table: PreviewTable;
  /** Version of the gateway's tables that first had them. */
  #published = FIRST;
  #keptVersion: number;
  #keeping: Promise<void> = Promise.resolve();

  constructor({ table = { version: 0, routes: [] }, keep = async () => {} }: PreviewsInit = {}) {
    this.#table = table;
    this.#keptVersion = table.version;
    this.#keep = keep;
  }

  get version(): number {
    return this.#table.version;
  }

  get routes() {
    return this.#table.routes;
  }

  /** Kept, and in force at the gateway, when this returns. The same table again waits for the same confirmation. */
  async replace(link: GatewayLink, table: PreviewTable): Promise<void> {
    this.#refuseOlder(table);
    if (table.version > this.version) {
      this.#table = table;
      this.#published = link.publish();
    }
    // A route that was taken back is closed at the gateway also where the disk is full.
    const [isConfirmed] = await Promise.all([
      link.confirmed(this.#published, CONFIRM_MS),
      this.#keepOnce(table.version),
    ]);
    if (isConfirmed) return;
    throw new NodeError(
      "network_unconfirmed",
      "the gateway did not confirm the previews in time; they are kept",
    );
  }

  /** Of one version there is one table: control whose database was set back counts on from the node's version. */
  #refuseOlder({ version, routes }: PreviewTable): void {
    if (version > this.version) return;
    if (version === this.version && isDeepStrictEqual(routes, this.routes)) return;
    throw new NodeError(
      "network_conflict",
      version < this.version
        ? `previews of version ${version} came after ${this.version}`
        : `previews of version ${version} came a second time with other routes; expected a later version`,
    );
  }

  /** One write at a time, each of the newest table: none that is older is ever written over it. */
  #keepOnce(version: number): Promise<void> {
    const turn = this.#keeping.then(async () => {
      if (this.#keptVersion >= version) return;
      const table = this.#table;
      await this.#keep(table);
      this.#keptVersion = table.version;
    });
    this.#keeping = turn.catch(() => undefined);
    return turn;
  }
}
