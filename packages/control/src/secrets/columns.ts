/** The part of a move that concerns sealed variables. */
import type { QueryCreator } from "kysely";
import type { Tables } from "../db/tables.ts";

/** The end of a session destroys its data key: nobody can open what was sealed with it. */
export function secretColumns({ endReason }: { endReason?: string }) {
  return endReason === undefined ? {} : { env: null, kek_id: null, data_key: null, state_key: null };
}

/** Deletes the sealed values of the session that the statement's CTE `moved` returns. */
export function deleteSealedOfMoved(within: QueryCreator<Tables & { moved: { id: string } }>) {
  return within
    .deleteFrom("sealed_values")
    .where("session_id", "in", (eb) => eb.selectFrom("moved").select("moved.id"));
}
