/** Assignments to the network columns, for statements that also write other columns of the session. */
import { sql } from "kysely";
import type { Move } from "../sessions/state.ts";

/** For the next machine of a session: a new network generation, and its limit in bytes. */
export function nextNetworkColumns(limitBytes: number | null) {
  return { network_generation: sql<number>`network_generation + 1`, egress_limit_bytes: limitBytes };
}

/**
 * The network columns that a move changes. `foundGeneration`: the generation of a machine that this database did not
 * start.
 */
export function networkColumns(move: Move, foundGeneration?: number) {
  const isNewMachine = move.incarnation !== move.from.incarnation;
  return {
    // The machine was started with the row's network, which has not changed since.
    ...(isNewMachine && { network_applied: sql<number>`network_generation` }),
    ...(foundGeneration !== undefined && {
      network_generation: sql<number>`greatest(network_generation, ${foundGeneration}::bigint) + 1`,
      network_applied: 0,
    }),
  };
}
