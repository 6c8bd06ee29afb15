import type { ApiKeyRecord } from "@vivarium/contract/api";
import type { KeyRow } from "./store.ts";

/** Everything of a key but the key itself, which is nowhere. */
export function toKeyRecord(row: KeyRow): ApiKeyRecord {
  return {
    id: row.id,
    name: row.name,
    ...(row.prefix !== null && { prefix: row.prefix }),
    ...(row.scoped_project_id !== null && { project_id: row.scoped_project_id }),
    role: row.role,
    ...(row.concurrent_sessions !== null && { concurrent_sessions: row.concurrent_sessions }),
    created_at: row.created_at.toISOString(),
    ...(row.expires_at && { expires_at: row.expires_at.toISOString() }),
    ...(row.last_used_at && { last_used_at: row.last_used_at.toISOString() }),
  };
}
