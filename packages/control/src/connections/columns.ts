/** Columns of sessions that concern Connections, for statements that also write others: of a move, and of a network. */
import { type QueryCreator, type RawBuilder, sql } from "kysely";
import type { Tables } from "../db/tables.ts";

/**
 * The next version: at least the time, so that a database that was restored from a backup does not give a version again that
 * it gave before for other Connections.
 */
export const nextVersion = (after: RawBuilder<number>) =>
  sql<number>`greatest(${after} + 1, floor(extract(epoch from now()) * 1000)::bigint)`;

/** One more bound host. Hosts are only ever added: a revoked Connection keeps its host. */
export function boundHostColumns(host: string) {
  return {
    connections_version: nextVersion(sql`connections_version`),
    bound_hosts: sql<string[]>`array_append(bound_hosts, ${host})`,
  };
}

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
