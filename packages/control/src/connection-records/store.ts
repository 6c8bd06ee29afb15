/** SQL that reads Connections. */
import { type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ConnectionTable } from "../db/tables.ts";
import { IS_EXPIRED } from "./columns.ts";

export type ConnectionRow = Selectable<ConnectionTable> & {
  /** Whether its time is over, by the database's clock. */
  is_expired: boolean;
};

/** Oldest first. */
export async function listConnections(db: Queries, sessionIds: readonly string[]): Promise<ConnectionRow[]> {
  if (sessionIds.length === 0) return [];
  return await db
    .selectFrom("connections")
    .selectAll()
    .select(IS_EXPIRED)
    .where("session_id", "in", sessionIds)
    .orderBy("seq")
    .execute();
}

/** Whether a Connection of the session can be used now. */
export async function hasActiveConnection(db: Queries, sessionId: string): Promise<boolean> {
  const row = await db
    .selectFrom("connections")
    .select("name")
    .where("session_id", "=", sessionId)
    .where("revoked_at", "is", null)
    .where(sql<boolean>`expires_at > now()`)
    .executeTakeFirst();
  return row !== undefined;
}
