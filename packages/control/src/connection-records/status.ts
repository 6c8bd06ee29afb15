/** Turns rows of Connections into public records: never the credential, nor the key of the session's authority. */
import type { ConnectionState, ConnectionStatus } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type ConnectionRow, listConnections } from "./store.ts";

export function toStatus(row: ConnectionRow): ConnectionStatus {
  return {
    name: row.name,
    origin: originOf(row),
    state: stateOf(row),
    ...(row.suspended_at && row.revoked_at === null && { suspended: true }),
    auth_type: row.auth_type,
    header_name: row.header_name,
    allow: { methods: row.methods, paths: row.paths },
    created_at: row.created_at.toISOString(),
    expires_at: row.expires_at.toISOString(),
    ...(row.revoked_at && { revoked_at: row.revoked_at.toISOString() }),
    ...(row.last_used_at && { last_used_at: row.last_used_at.toISOString() }),
  };
}

export const originOf = ({ host }: { host: string }) => `https://${host}`;

export function stateOf({ revoked_at, is_expired }: ConnectionRow): ConnectionState {
  if (revoked_at !== null) return "revoked";
  return is_expired ? "expired" : "active";
}

/** A session's row, as far as it says whether its record shows Connections. */
interface MayBeBound {
  id: string;
  state: string;
  bound_hosts: string[] | null;
}

/**
 * Reads the Connections that the records of these sessions show: undefined for a session that never had one. The record of an
 * ended session shows none.
 */
export async function readShownConnections(
  db: Queries,
  sessions: readonly MayBeBound[],
): Promise<(session: MayBeBound) => ConnectionStatus[] | undefined> {
  const isShown = ({ bound_hosts, state }: MayBeBound) => bound_hosts !== null && state !== "destroyed";
  const bound = sessions.filter(isShown).map(({ id }) => id);
  const rows = Map.groupBy(await listConnections(db, bound), ({ session_id }) => session_id);
  return ({ id, bound_hosts }) => (bound_hosts === null ? undefined : (rows.get(id) ?? []).map(toStatus));
}
