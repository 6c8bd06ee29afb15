/** The columns of an event, for a statement that also changes the event's session. */
import { type QueryCreator, sql } from "kysely";
import type { Tables } from "../db/tables.ts";
import { type EventOwner, type NewEvent, newEventId } from "./append.ts";

/** Inserts an event of the session that the statement's CTE `moved` returns; nothing if it returns no row. */
export function insertEventOfMoved(
  within: QueryCreator<Tables & { moved: EventOwner }>,
  { type, data }: Pick<NewEvent, "type" | "data">,
) {
  return within
    .insertInto("events")
    .columns(["id", "type", "org_id", "project_id", "session_id", "data"])
    .expression((eb) =>
      eb
        .selectFrom("moved")
        .select([
          sql<string>`${newEventId()}`.as("id"),
          sql<string>`${type}`.as("type"),
          "moved.org_id",
          "moved.project_id",
          "moved.id as session_id",
          sql<string>`${JSON.stringify(data)}::jsonb`.as("data"),
        ]),
    );
}
