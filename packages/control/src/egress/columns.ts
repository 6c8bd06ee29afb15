/** Assignments to the columns of the network, for statements that write other columns of the session as well. */
import { sql } from "kysely";
import type { Move } from "../sessions/state.ts";

/** The next machine gets a generation of its own. */
export function nextNetworkColumns(limitBytes: number | null) {
  return { network_generation: sql<number>`network_generation + 1`, egress_limit_bytes: limitBytes };
}

/**
 * What a move makes of the network. `foundGeneration`: the machine was not started by this database, and has a network
 * of this generation.
 */
export function networkColumns(move: Move, foundGeneration?: number) {
  const isNewMachine = move.incarnation !== move.from.incarnation;
  return {
    // The machine was started with the network of the row, which has not changed since.
    ...(isNewMachine && { network_applied: sql<number>`network_generation` }),
    ...(foundGeneration !== undefined && {
      network_generation: sql<number>`greatest(network_generation, ${foundGeneration}::bigint) + 1`,
      network_applied: 0,
    }),
  };
}
