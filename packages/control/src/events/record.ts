/** The public form of an event (docs/spec/events.md). */
import type { Event } from "@vivarium/contract/api";
import type { EventRow } from "./store.ts";

export function toEvent(row: EventRow): Event {
  return {
    id: row.id,
    type: row.type,
    created_at: row.created_at.toISOString(),
    org_id: row.org_id,
    ...(row.project_id !== null && { project_id: row.project_id }),
    ...(row.session_id !== null && { session_id: row.session_id }),
    data: row.data,
  };
}
