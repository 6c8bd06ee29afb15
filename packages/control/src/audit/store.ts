/** SQL of the audit log. */
import { LIMITS } from "@vivarium/contract/api";
import { type Insertable, type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { AuditLogTable } from "../db/tables.ts";
import type { Cursor } from "../http/cursor.ts";

export type AuditRow = Selectable<AuditLogTable>;
export type NewAuditRow = Insertable<AuditLogTable>;

/** Inserts entries. One that exists, because the answer to its insert was lost, is updated while it is pending. */
export async function insertEntries(db: Queries, entries: readonly NewAuditRow[]): Promise<void> {
  await db
    .insertInto("audit_log")
    .values([...entries])
    .onConflict((conflict) =>
      conflict
        .column("id")
        .doUpdateSet((row) => ({ outcome: row.ref("excluded.outcome"), meta: row.ref("excluded.meta") }))
        .where("audit_log.outcome", "=", "pending"),
    )
    .execute();
}

export interface Completion {
  id: string;
  outcome: "ok" | "error";
  meta: object;
}

/** Completes pending entries. Complete entries stay as they are. */
export async function completeEntries(db: Queries, completions: readonly Completion[]): Promise<void> {
  await sql`update audit_log set outcome = done.outcome, meta = audit_log.meta || done.meta
    from unnest(
      ${completions.map(({ id }) => id)}::text[],
      ${completions.map(({ outcome }) => outcome)}::text[],
      ${completions.map(({ meta }) => JSON.stringify(meta))}::jsonb[]
    ) as done (id, outcome, meta)
    where audit_log.id = done.id and audit_log.outcome = 'pending'`.execute(db);
}

export interface AuditFilter {
  since?: Date;
  until?: Date;
  action?: string;
  sessionId?: string;
  after?: Cursor;
  limit: number;
}

/** Newest first; of the same instant, the last written first, by `seq`, which no reader sees. */
export async function listEntries(db: Queries, orgId: string, filter: AuditFilter): Promise<AuditRow[]> {
  const { since, until, action, sessionId, after, limit } = filter;
  let query = db.selectFrom("audit_log").selectAll().where("org_id", "=", orgId);
  if (since) query = query.where("at", ">=", since);
  if (until) query = query.where("at", "<", until);
  if (action !== undefined) query = query.where("action", "=", action);
  if (sessionId !== undefined) query = query.where("session_id", "=", sessionId);
  if (after) {
    // If the entry of the cursor was deleted by age, all entries of its instant were deleted as well.
    const position = sql`(${after.at}, (select seq from audit_log where org_id = ${orgId} and id = ${after.id}))`;
    query = query.where(sql<boolean>`(at, seq) < ${position}`);
  }
  return await query.orderBy("at", "desc").orderBy("seq", "desc").limit(limit).execute();
}

export async function deleteOldEntries(db: Queries): Promise<void> {
  const seconds = LIMITS.auditRetentionMs / 1000;
  await db
    .deleteFrom("audit_log")
    .where("at", "<", sql<Date>`service_now() - make_interval(secs => ${seconds})`)
    .execute();
}
