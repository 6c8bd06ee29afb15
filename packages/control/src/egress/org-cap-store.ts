/** SQL of the caps of organisations. Whether one is reached is written into its row, where a create reads it. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { TODAY } from "../db/today.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { EgressCaps } from "./org-cap.ts";

/** Null: none. `least` passes over nulls. */
const usual = ({ orgBytes, orgMaxBytes }: EgressCaps) =>
  sql<number | null>`least(nullif(${orgBytes}::bigint, 0), nullif(${orgMaxBytes}::bigint, 0))`;
const inForce = ({ orgBytes, orgMaxBytes }: EgressCaps) => sql<number | null>`least(
  nullif(coalesce(orgs.egress_cap_bytes, ${orgBytes}::bigint), 0), nullif(${orgMaxBytes}::bigint, 0))`;

const sentToday = sql<number>`(select coalesce(sum(egress_last - egress_start), 0)::bigint
  from egress_usage join sessions on sessions.id = egress_usage.session_id
  where egress_usage.day = ${TODAY} and sessions.org_id = orgs.id)`;

/** The day to be marked; null: not capped. */
const judgement = (caps: EgressCaps) =>
  sql<string | null>`case when ${sentToday} >= ${inForce(caps)} then ${TODAY} end`;

export async function findOrgCap(
  db: Queries,
  caps: EgressCaps,
  orgId: string,
): Promise<{ bytes: number; isOwn: boolean; usualBytes: number }> {
  return await db
    .selectFrom("orgs")
    .select(sql<number>`coalesce(${inForce(caps)}, 0)`.as("bytes"))
    .select(sql<boolean>`egress_cap_bytes is not null`.as("isOwn"))
    .select(sql<number>`coalesce(${usual(caps)}, 0)`.as("usualBytes"))
    .where("id", "=", orgId)
    .executeTakeFirstOrThrow();
}

export async function orgUsage(db: Queries, orgId: string): Promise<{ date: string; bytes: number }> {
  return await db
    .selectFrom("orgs")
    .select([TODAY.as("date"), sentToday.as("bytes")])
    .where("id", "=", orgId)
    .executeTakeFirstOrThrow();
}

export async function saveOrgCap(db: Queries, orgId: string, capBytes: number | null): Promise<void> {
  await db.updateTable("orgs").set({ egress_cap_bytes: capBytes }).where("id", "=", orgId).execute();
}

/** Organisations whose mark is not what it should be. Those without cap and mark cost no sum. */
export async function listMisjudged(db: Queries, caps: EgressCaps): Promise<string[]> {
  const found = await db
    .selectFrom("orgs")
    .select("id")
    .where(
      sql<boolean>`case when ${inForce(caps)} is null and egress_capped_on is null then false
        else egress_capped_on is distinct from ${judgement(caps)} end`,
    )
    .execute();
  return found.map(({ id }) => id);
}

/** The caller holds the organisation's row, so that no cap changes under the sum. True when it was marked by this. */
export async function judgeOrg(tx: Queries, caps: EgressCaps, orgId: string): Promise<boolean> {
  const row = await tx
    .updateTable("orgs")
    .set({ egress_capped_on: judgement(caps) })
    .where("id", "=", orgId)
    .where(sql<boolean>`egress_capped_on is distinct from ${judgement(caps)}`)
    .returning("egress_capped_on")
    .executeTakeFirst();
  return row != null && row.egress_capped_on !== null;
}

export async function isOrgCapped(db: Queries, orgId: string): Promise<boolean> {
  const row = await db
    .selectFrom("orgs")
    .select("id")
    .where("id", "=", orgId)
    .where("egress_capped_on", "=", TODAY)
    .executeTakeFirst();
  return row !== undefined;
}

/** Live sessions that may not run any more today, and that nothing holds. */
export async function listLiveOverCap(db: Queries, limit: number): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .innerJoin("orgs", "orgs.id", "sessions.org_id")
    .selectAll("sessions")
    .where("orgs.egress_capped_on", "=", TODAY)
    .where("sessions.state", "=", "live")
    .where("sessions.op", "is", null)
    .limit(limit)
    .execute();
  return rows as SessionRow[];
}
