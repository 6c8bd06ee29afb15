/** Dependencies of volumes. */
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { VolumeSizes } from "./quota.ts";

export interface VolumeDeps extends AuditDeps {
  db: Database;
  nodes: NodeClient;
  volumeSizes: VolumeSizes;
  log: { warn(details: object, text: string): void };
}
