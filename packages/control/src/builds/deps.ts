/** Dependencies of builds. */
import type { Log } from "@vivarium/kit/log";
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { JobKindName } from "../jobs/kinds.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { Keyring } from "../secrets/keyring.ts";

export interface BuildDeps extends AuditDeps {
  db: Database;
  nodes: NodeClient;
  node: NodeState;
  jobs: JobQueue<JobKindName>;
  keyring: Keyring;
  log: Log;
}
