/**
 * Writes an event in the transaction of its cause, so that it exists exactly when its cause does. The caller has
 * locked the session's row, so that the events of a session are written in the order of their commits. Events without
 * a change of the row (refusals, denials) have no such order. A move writes its event in its one statement, with
 * columns.ts.
 */
import { type EventType, ID_PREFIXES } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { Queries } from "../db/pool.ts";
import { insertEvents } from "./store.ts";

export interface NewEvent {
  type: EventType;
  orgId: string;
  projectId: string | null;
  sessionId?: string;
  /** No secrets, tokens, commands or file contents. */
  data: Record<string, unknown>;
}

/** The session's fields in an event, besides `data`. */
export interface EventOwner {
  id: string;
  org_id: string;
  project_id: string | null;
}

export function eventOf(session: EventOwner, type: EventType, data: Record<string, unknown>): NewEvent {
  return { type, orgId: session.org_id, projectId: session.project_id, sessionId: session.id, data };
}

export async function appendEvent(tx: Queries, event: NewEvent): Promise<void> {
  await appendEvents(tx, [event]);
}

export async function appendEvents(tx: Queries, events: readonly NewEvent[]): Promise<void> {
  await insertEvents(tx, events.map(rowOf));
}

export function rowOf({ type, orgId, projectId, sessionId, data }: NewEvent) {
  return {
    id: newEventId(),
    type,
    org_id: orgId,
    project_id: projectId,
    session_id: sessionId ?? null,
    data: JSON.stringify(data),
  };
}

export function newEventId(): string {
  return ID_PREFIXES.event + randomId();
}
