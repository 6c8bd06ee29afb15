/**
 * Sends the Connections of a session to its node, which keeps them in memory alone. This is the one place where credentials
 * leave the database in the clear.
 */
import type { SessionConnections } from "@vivarium/contract/gateway";
import { type ConnectionRow, listConnections } from "../connection-records/store.ts";
import { openDataKey, type WrappedKey } from "../secrets/data-key.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import { openAuthority } from "./authority.ts";
import type { ConnectionDeps } from "./deps.ts";
import { overtake } from "./overtake.ts";
import { openHeader } from "./seal.ts";

export type PushDeps = Pick<ConnectionDeps, "db" | "nodes" | "keyring">;

/**
 * Resolves once the node, and its gateway where a machine runs, have the newest Connections of the session. The gateway
 * uses them under a lease alone: see `putInForce`.
 */
export async function pushConnections(
  deps: PushDeps,
  sessionId: string,
  over: AbortSignal,
): Promise<{ isLeased: boolean }> {
  let opened = await readOpened(deps, sessionId);
  while (opened) {
    const { version, is_leased } = await deps.nodes.putConnections(opened, over);
    if (version <= opened.version) return { isLeased: is_leased };
    await overtake(deps, sessionId, version);
    opened = await readOpened(deps, sessionId);
  }
  // An ended session has no credentials any more: its machine is removed, and the next lease does not list it.
  return { isLeased: true };
}

/**
 * Before an operation that starts a machine is claimed: if the credentials cannot be opened, because their key is missing or
 * damaged, the operation would be repeated for ever.
 */
export async function requireOpenable(deps: PushDeps, session: SessionRow): Promise<void> {
  if (session.ca_certificate !== null) await readOpened(deps, session.id);
}

/** The newest Connections of a session, with their credentials; undefined if it has no data key any more. */
async function readOpened(deps: PushDeps, sessionId: string): Promise<SessionConnections | undefined> {
  // In one snapshot: a version with the Connections of another one would never be sent again.
  const found = await deps.db
    .transaction()
    .setIsolationLevel("repeatable read")
    .execute(async (tx) => {
      const session = await findSessionById(tx, sessionId);
      return session && { session, rows: await listConnections(tx, [sessionId]) };
    });
  return found && (await open(deps, found.session, found.rows));
}

async function open(
  { keyring }: PushDeps,
  session: SessionRow,
  rows: readonly ConnectionRow[],
): Promise<SessionConnections | undefined> {
  if (session.kek_id === null || session.data_key === null) return undefined;
  const owner: SessionRow & WrappedKey = { ...session, kek_id: session.kek_id, data_key: session.data_key };
  const key = await openDataKey(keyring, owner);
  const ca = openAuthority(key, session);
  if (!ca) return undefined;
  const sent: SessionConnections = {
    session_id: session.id,
    version: session.connections_version,
    ca,
    connections: [],
    tombstones: [],
  };
  for (const row of rows) {
    const { name, host, methods, paths, generation, sealed } = row;
    const ended = endOf(row);
    if (ended !== undefined || sealed === null) {
      sent.tombstones.push({ name, host, state: ended ?? "revoked" });
      continue;
    }
    const header = openHeader(key, session, { ...row, sealed });
    const expires_at = row.expires_at.toISOString();
    sent.connections.push({ name, host, methods, paths, header, generation, expires_at });
  }
  return sent;
}

function endOf(row: ConnectionRow): "revoked" | "expired" | "suspended" | undefined {
  if (row.revoked_at !== null) return "revoked";
  if (row.suspended_at !== null) return "suspended";
  return row.is_expired ? "expired" : undefined;
}
