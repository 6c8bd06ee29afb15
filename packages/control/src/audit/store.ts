/** SQL of the entries of the audit log. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Database, Queries } from "../db/pool.ts";
import type { AuditLogTable } from "../db/tables.ts";
import type { Cursor } from "../http/cursor.ts";

export type AuditRow = Selectable<AuditLogTable>;
export type NewAuditRow = Omit<Insertable<AuditLogTable>, "at" | "session_id" | "code"> &
  Pick<AuditRow, "at" | "session_id" | "code">;

/** Inserts entries. One that exists, because the answer to its insert was lost, is updated while it is pending. */
export async function insertEntries(db: Queries, entries: readonly NewAuditRow[]): Promise<void> {
  await db
    .insertInto("audit_log")
    .values([...entries])
    .onConflict((conflict) =>
      conflict
        .column("id")
        .doUpdateSet((row) => ({
          outcome: row.ref("excluded.outcome"),
          meta: row.ref("excluded.meta"),
          seal: row.ref("excluded.seal"),
        }))
        .where("audit_log.outcome", "=", "pending"),
    )
    .execute();
}

export interface Completion {
  id: string;
  outcome: "ok" | "error";
  meta: string;
  seal: Buffer;
}

/** Completes pending entries. Complete entries stay as they are. */
export async function completeEntries(db: Queries, completions: readonly Completion[]): Promise<void> {
  await sql`update audit_log set outcome = done.outcome, meta = done.meta, seal = done.seal
    from unnest(
      ${completions.map(({ id }) => id)}::text[],
      ${completions.map(({ outcome }) => outcome)}::text[],
      ${completions.map(({ meta }) => meta)}::jsonb[],
      ${completions.map(({ seal }) => seal)}::bytea[]
    ) as done (id, outcome, meta, seal)
    where audit_log.id = done.id and audit_log.outcome = 'pending'`.execute(db);
}

export interface AuditFilter {
  since?: Date;
  until?: Date;
  actor?: string;
  action?: string;
  target?: string;
  sessionId?: string;
  after?: Cursor;
  limit: number;
}

/** Newest first; of the same instant, the last written first, by `seq`, which no reader sees. */
export async function listEntries(db: Queries, orgId: string, filter: AuditFilter): Promise<AuditRow[]> {
  const { since, until, actor, action, target, sessionId, after, limit } = filter;
  let query = db.selectFrom("audit_log").selectAll().where("org_id", "=", orgId);
  if (since) query = query.where("at", ">=", since);
  if (until) query = query.where("at", "<", until);
  if (actor !== undefined) query = query.where("actor_id", "=", actor);
  if (action !== undefined) query = query.where("action", "=", action);
  if (target !== undefined) query = query.where("target", "=", target);
  if (sessionId !== undefined) query = query.where("session_id", "=", sessionId);
  if (after) {
    // If the entry of the cursor was deleted by age, all entries of its instant were deleted as well.
    const position = sql`(${after.at}, (select seq from audit_log where org_id = ${orgId} and id = ${after.id}))`;
    query = query.where(sql<boolean>`(at, seq) < ${position}`);
  }
  return await query.orderBy("at", "desc").orderBy("seq", "desc").limit(limit).execute();
}

/** The organisation that the service was set up with: denials of callers that nobody knows are written for it. */
export async function findFirstOrg(db: Database): Promise<string | undefined> {
  const row = await db.selectFrom("orgs").select("id").orderBy("created_at").orderBy("id").limit(1).execute();
  return row[0]?.id;
}
