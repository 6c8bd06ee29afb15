/** Dependencies of the service's routes and gauges. */
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { JobKindName } from "../jobs/kinds.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Keyring } from "../secrets/keyring.ts";
import type { CeilingDeps } from "../sessions/slots.ts";
import type { VolumeSizes } from "../volumes/quota.ts";

export interface ServiceDeps extends CeilingDeps {
  db: Database;
  node: NodeState;
  nodes: NodeClient;
  meter: Meter;
  jobs: JobQueue<JobKindName>;
  version: string;
  keyring: Keyring;
  /** Whether saved states are kept in the object store, too. */
  hasArchives: boolean;
  /** Most children that one fork may create. */
  forkChildren: number;
  volumeSizes: VolumeSizes;
}
