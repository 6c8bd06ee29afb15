/** The part of a move that concerns Connections. */
import type { QueryCreator } from "kysely";
import type { Tables } from "../db/tables.ts";

/** The end of a session destroys the key of its authority. */
export function connectionColumns({ endReason }: { endReason?: string }) {
  return endReason === undefined ? {} : { ca_key: null };
}

/** Deletes the credentials of the session that the statement's CTE `moved` returns. Its Connections can still be listed. */
export function shredConnectionsOfMoved(within: QueryCreator<Tables & { moved: { id: string } }>) {
  return within
    .updateTable("connections")
    .set({ sealed: null })
    .where("session_id", "in", (eb) => eb.selectFrom("moved").select("moved.id"));
}
