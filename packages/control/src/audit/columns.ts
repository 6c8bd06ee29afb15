/** An entry within a statement that also moves the session: it is written if the session was moved. */
import { type QueryCreator, sql } from "kysely";
import type { Tables } from "../db/tables.ts";
import type { newRow } from "./entry.ts";

/** Inserts the entry, unless the statement's CTE `moved` returns no row. */
export function insertEntryOfMoved(
  within: QueryCreator<Tables & { moved: { id: string } }>,
  row: ReturnType<typeof newRow>,
) {
  return within
    .insertInto("audit_log")
    .columns([
      ...(["id", "org_id", "session_id", "at", "actor_kind", "actor_id", "action", "target"] as const),
      ...(["outcome", "code", "request_id", "ip", "meta", "seal"] as const),
    ])
    .expression((eb) =>
      eb
        .selectFrom("moved")
        .select([
          sql<string>`${row.id}::text`.as("id"),
          sql<string>`${row.org_id}::text`.as("org_id"),
          sql<string | null>`${row.session_id}::text`.as("session_id"),
          sql<Date>`${row.at}::timestamptz`.as("at"),
          sql<string>`${row.actor_kind}::text`.as("actor_kind"),
          sql<string>`${row.actor_id}::text`.as("actor_id"),
          sql<string>`${row.action}::text`.as("action"),
          sql<string>`${row.target}::text`.as("target"),
          sql<"ok">`${row.outcome}::text`.as("outcome"),
          sql<string | null>`${row.code}::text`.as("code"),
          sql<string>`${row.request_id}::text`.as("request_id"),
          sql<string>`${row.ip}::text`.as("ip"),
          sql<string>`${row.meta}::jsonb`.as("meta"),
          sql<Buffer>`${row.seal}::bytea`.as("seal"),
        ]),
    );
}
