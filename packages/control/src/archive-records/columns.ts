/** The part of a move that concerns archives. */
import type { QueryCreator } from "kysely";
import type { Tables } from "../db/tables.ts";

/**
 * The end of a session destroys the keys of its pauses' archives: nobody can open them. No other archive has one of them as
 * its base.
 */
export function deleteArchivesOfMoved(within: QueryCreator<Tables & { moved: { id: string } }>) {
  return within
    .deleteFrom("archives")
    .where("kind", "=", "pause")
    .where("session_id", "in", (eb) => eb.selectFrom("moved").select("moved.id"));
}
