/**
 * Kinds of operations and their input. An operation changes or saves a session's machine and takes time on the node. At
 * most one is in flight per session. It is written into the session's row before any work starts. If its process
 * dies, another process finds it in the row and finishes it or rolls it back (docs/design/operations.md).
 */
import type { SessionEvent } from "@vivarium/contract/api";
import type { RawBuilder } from "kysely";
import type { Caller } from "../access/caller.ts";

/** `settle` brings the machines of a session in line with its row: one is continued, the others are removed. */
export type OperationKind = "pause" | "wake" | "restore" | "checkpoint" | "fork" | "save_template" | "settle";

/** Everything that another process needs to take the operation over. Plain JSON only. */
export interface OperationInput {
  /** The snapshot that this operation makes. Unless the operation commits it, it is an orphan and is deleted. */
  snapshot_id?: string;
  /** The event that caused the operation. For a pause, it decides the state that the session ends in. */
  event?: SessionEvent;
  /** The caller that asked for it; absent: the service itself. */
  by?: Caller;
  /** Time of the scheduled wake after a pause, RFC 3339. */
  wake_at?: string;
  [field: string]: unknown;
}

/** Network columns for the session's next machine: a new generation, and its egress limit. */
export interface NextNetwork {
  network_generation: RawBuilder<number>;
  egress_limit_bytes: number | null;
}

/** Operations that stop or replace the machine. Guest operations wait until they end. */
const STOPS_GUEST: ReadonlySet<OperationKind> = new Set(["pause", "restore", "settle"]);

export function stopsGuest(kind: OperationKind | null): boolean {
  return kind !== null && STOPS_GUEST.has(kind);
}

/** During these operations the next machine's network is already chosen, so the policy must not change. */
export const NETWORK_FIXED_DURING = ["pause", "wake", "restore", "settle"] as const satisfies OperationKind[];

export function isNetworkFixed(op: OperationKind | null): boolean {
  return (NETWORK_FIXED_DURING as readonly (OperationKind | null)[]).includes(op);
}
