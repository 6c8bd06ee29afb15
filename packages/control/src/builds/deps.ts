/** Dependencies of builds. */
import type { AuditDeps } from "../audit/append.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { JobKindName } from "../jobs/kinds.ts";
import type { JobQueue } from "../jobs/queue.ts";
import type { MoveDeps } from "../moves/deps.ts";

export interface BuildDeps extends AuditDeps, MoveDeps {
  node: NodeState;
  jobs: JobQueue<JobKindName>;
}
