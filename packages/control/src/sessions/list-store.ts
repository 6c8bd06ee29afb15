import { sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { Cursor } from "../http/cursor.ts";
import type { SessionRow } from "./store.ts";

/** Ordered by creation time, newest first. */
export async function listCurrent(
  db: Queries,
  scope: Scope,
  filter: { states?: string[]; externalId?: string; limit: number },
): Promise<SessionRow[]> {
  let query = rowsOf(db, scope)
    .where("state", "<>", "destroyed")
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(filter.limit);
  if (filter.states) query = query.where("state", "in", filter.states);
  if (filter.externalId !== undefined) query = query.where("external_id", "=", filter.externalId);
  return (await query.execute()) as SessionRow[];
}

/** Ordered by end time, newest first. */
export async function listEnded(
  db: Queries,
  scope: Scope,
  { after, limit }: { after?: Cursor; limit: number },
): Promise<SessionRow[]> {
  let query = rowsOf(db, scope)
    .where("state", "=", "destroyed")
    .orderBy("ended_at", "desc")
    .orderBy("id", "desc")
    .limit(limit);
  if (after) query = query.where(sql<boolean>`(ended_at, id) < (${after.at}, ${after.id})`);
  return (await query.execute()) as SessionRow[];
}

function rowsOf(db: Queries, scope: Scope) {
  const query = db.selectFrom("sessions").selectAll().where("org_id", "=", scope.orgId);
  return scope.projectId === null ? query : query.where("project_id", "=", scope.projectId);
}
