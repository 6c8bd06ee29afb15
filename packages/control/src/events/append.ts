/**
 * Tells what happened, in the transaction in which it happens: an event exists exactly when its cause does. Who calls
 * this holds the session's row, so that the events of a session are written in the order of their commits; what is
 * told of no change of the row (refusals, denials) has no such order among the others.
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
  /** No secret, no token, no command, no content of a file. */
  data: Record<string, unknown>;
}

/** What an event tells of its session besides `data`. */
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
  await insertEvents(
    tx,
    events.map(({ type, orgId, projectId, sessionId, data }) => ({
      id: newEventId(),
      type,
      org_id: orgId,
      project_id: projectId,
      session_id: sessionId ?? null,
      data: JSON.stringify(data),
    })),
  );
}

export function newEventId(): string {
  return ID_PREFIXES.event + randomId();
}
