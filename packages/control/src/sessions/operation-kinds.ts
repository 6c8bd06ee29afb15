/**
 * Operations take time on the node and change what a session is made of. One at a time holds a session: it is written
 * into the session's row before anything is done, so that whoever finds it there after its process died can finish it
 * or take it back.
 */
import type { SessionEvent } from "@vivarium/contract/api";
import type { RawBuilder } from "kysely";

/** `settle` brings the machines of a session in line with its row: one goes on, others go. */
export const OPERATION_KINDS = [
  "pause",
  "wake",
  "restore",
  "checkpoint",
  "fork",
  "save_template",
  "settle",
] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** What an operation needs to be taken up again by another process. Only plain JSON. */
export interface OperationInput {
  /** A snapshot that this operation makes: nobody's, and deleted, unless the operation commits it. */
  snapshot_id?: string;
  /** Why the session is paused; decides the state it ends in. */
  event?: SessionEvent;
  /** RFC 3339. */
  wake_at?: string;
  [field: string]: unknown;
}

/** Columns of the network that the session's next machine gets: a generation of its own, and its limit. */
export interface NextNetwork {
  network_generation: RawBuilder<number>;
  egress_limit_bytes: number | null;
}

/** During these the machine stands still or is exchanged: guest operations wait for their end. */
const STOPS_GUEST: ReadonlySet<OperationKind> = new Set(["pause", "restore", "settle"]);

export function stopsGuest(kind: OperationKind | null): boolean {
  return kind !== null && STOPS_GUEST.has(kind);
}

/** While one of these holds the session its next machine has its network already: nothing changes meanwhile. */
export const NETWORK_STANDS = ["pause", "wake", "restore", "settle"] as const satisfies OperationKind[];

export function isNetworkStanding(op: OperationKind | null): boolean {
  return (NETWORK_STANDS as readonly (OperationKind | null)[]).includes(op);
}
