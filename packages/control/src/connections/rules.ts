/** Checks and values that all changes of a session's Connections need. */
import { originOf } from "../connection-records/status.ts";
import type { ConnectionRow } from "../connection-records/store.ts";
import { ApiError } from "../errors/api-error.ts";
import { openDataKey } from "../secrets/data-key.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { ConnectionDeps } from "./deps.ts";

export function requireUsable(session: SessionRow): void {
  if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
}

/** Seconds until the session's lifetime is over; undefined: it has no end. */
export function remainingOf({ created_at: at, max_lifetime_ms: lifetimeMs }: SessionRow): number | undefined {
  if (lifetimeMs === null) return undefined;
  return Math.max(0, Math.floor((at.getTime() + lifetimeMs - Date.now()) / 1000));
}

export async function dataKeyOf(
  { keyring }: Pick<ConnectionDeps, "keyring">,
  session: SessionRow,
): Promise<Buffer> {
  const { kek_id, data_key } = session;
  if (kek_id === null || data_key === null) throw new Error("a session with Connections has no data key");
  return await openDataKey(keyring, { ...session, kek_id, data_key });
}

export function connectionNotFound(name: string): ApiError {
  return new ApiError("not_found", `the session has no Connection ${JSON.stringify(name)}`);
}

/** For the audit log: without the credential. */
export function metaOf(row: ConnectionRow) {
  return { origin: originOf(row), header: row.header_name, expires_at: row.expires_at.toISOString() };
}
