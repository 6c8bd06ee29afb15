/** SQL of organisations' daily caps. The row is marked with the day of a reached cap; a create reads the mark. */
import type { OrgEgressCap } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { TODAY } from "../db/time.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { EgressCaps } from "./org-cap.ts";

/** The operator's default cap in bytes; null: no cap. `least` ignores nulls. */
const defaultCap = ({ orgBytes, orgMaxBytes }: EgressCaps) =>
  sql<number | null>`least(nullif(${orgBytes}::bigint, 0), nullif(${orgMaxBytes}::bigint, 0))`;
const inForce = ({ orgBytes, orgMaxBytes }: EgressCaps) => sql<number | null>`least(
  nullif(coalesce(orgs.egress_cap_bytes, ${orgBytes}::bigint), 0), nullif(${orgMaxBytes}::bigint, 0))`;

const sentToday = sql<number>`(select coalesce(sum(egress_last - egress_start), 0)::bigint
  from egress_usage join sessions on sessions.id = egress_usage.session_id
  where egress_usage.day = ${TODAY} and sessions.org_id = orgs.id)`;

/** The mark that the row should have: today if its cap is reached, else null. */
const correctMark = (caps: EgressCaps) =>
  sql<string | null>`case when ${sentToday} >= ${inForce(caps)} then ${TODAY} end`;

/** The cap as the API shows it. */
export async function readOrgCap(db: Queries, caps: EgressCaps, orgId: string): Promise<OrgEgressCap> {
  return await db
    .selectFrom("orgs")
    .select(sql<number>`coalesce(${inForce(caps)}, 0)`.as("cap_bytes"))
    .select(sql<boolean>`egress_cap_bytes is not null`.as("override"))
    .select(sql<number>`coalesce(${defaultCap(caps)}, 0)`.as("default_cap_bytes"))
    .select([sentToday.as("today_bytes"), TODAY.as("date")])
    .where("id", "=", orgId)
    .executeTakeFirstOrThrow();
}

export async function saveOrgCap(db: Queries, orgId: string, capBytes: number | null): Promise<void> {
  await db.updateTable("orgs").set({ egress_cap_bytes: capBytes }).where("id", "=", orgId).execute();
}

/** Organisations whose mark is wrong. The bytes are summed only for those with a cap or a mark. */
export async function listOrgsWithWrongMark(db: Queries, caps: EgressCaps): Promise<string[]> {
  const found = await db
    .selectFrom("orgs")
    .select("id")
    .where(
      sql<boolean>`case when ${inForce(caps)} is null and egress_capped_on is null then false
        else egress_capped_on is distinct from ${correctMark(caps)} end`,
    )
    .execute();
  return found.map(({ id }) => id);
}

/** Sets or removes the mark; true when it was set. The caller has locked the row, so that its cap does not change. */
export async function updateOrgMark(tx: Queries, caps: EgressCaps, orgId: string): Promise<boolean> {
  const row = await tx
    .updateTable("orgs")
    .set({ egress_capped_on: correctMark(caps) })
    .where("id", "=", orgId)
    .where(sql<boolean>`egress_capped_on is distinct from ${correctMark(caps)}`)
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

/** Live sessions without an operation in progress, of organisations over their cap, other than those in `except`. */
export async function listLiveOverCap(
  db: Queries,
  { except, limit }: { except: readonly string[]; limit: number },
): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .innerJoin("orgs", "orgs.id", "sessions.org_id")
    .selectAll("sessions")
    .where("orgs.egress_capped_on", "=", TODAY)
    .where("sessions.state", "=", "live")
    .where("sessions.op", "is", null)
    .where(sql<boolean>`sessions.id <> all(${[...except]}::text[])`)
    .limit(limit)
    .execute();
  return rows as SessionRow[];
}
