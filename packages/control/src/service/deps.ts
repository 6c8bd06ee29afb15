import type { Database } from "../db/pool.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { Meter } from "../metrics/meter.ts";

export interface ServiceDeps {
  db: Database;
  node: NodeState;
  meter: Meter;
  version: string;
  /** Most children of one fork. */
  forkChildren: number;
}
