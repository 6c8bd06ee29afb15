/** Connections of sessions at the fake node: in force at once, in memory alone, forgotten when the node goes down. */
import { ConnectionLease, type ConnectionsKept, SessionConnections } from "@vivarium/contract/node";
import { Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

/** Renews the lease. Returns the sessions of which the node has another version. */
export async function putLease(state: NodeState, body: unknown): Promise<{ session_ids: string[] }> {
  const lease = valid(ConnectionLease.safeParse(body));
  await state.onLease(lease);
  state.leases.push(lease);
  const listed = new Set(lease.sessions.map(({ session_id }) => session_id));
  for (const id of state.connections.keys()) if (!listed.has(id)) state.connections.delete(id);
  const others = lease.sessions.filter(
    ({ session_id, version }) => state.connections.get(session_id)?.version !== version,
  );
  return { session_ids: others.map(({ session_id }) => session_id) };
}

export async function putConnections(
  state: NodeState,
  sessionId: string,
  body: unknown,
): Promise<ConnectionsKept> {
  const sent = valid(SessionConnections.safeParse(body));
  if (sent.session_id !== sessionId)
    throw new Refusal("invalid", "session_id: it is another session than that of the path");
  await state.onConnections(sent);
  const known = state.connections.get(sessionId);
  const is_leased = state.leases.length > 0;
  if (state.endedSessions.has(sessionId)) return { version: sent.version, is_leased };
  if (known && known.version >= sent.version) return { version: known.version, is_leased };
  state.connections.set(sessionId, sent);
  return { version: sent.version, is_leased };
}

export function deleteConnections(state: NodeState, sessionId: string): void {
  state.connections.delete(sessionId);
  state.endedSessions.add(sessionId);
}
