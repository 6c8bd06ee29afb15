/** SQL of the claim that a process has on the provisioning of a session. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import type { SessionRow } from "../sessions/store.ts";

/** How long the claim lasts without renewal. */
export const PROVISION_LEASE_MS = 5_000;

/** Renews the claim. False if the session is no longer creating. */
export async function renewProvisionClaim(db: Queries, id: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("sessions")
    .set({ provision_claimed_until: leaseEnd(PROVISION_LEASE_MS) })
    .where("id", "=", id)
    .where("state", "=", "creating")
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/**
 * Claims sessions whose provisioning process died, with their age. Provisional sessions are left out: the sweep
 * destroys them instead.
 */
export async function claimOrphanedProvisions(
  db: Queries,
  lapsedBefore: Date,
): Promise<{ session: SessionRow; ageMs: number }[]> {
  const rows = await db
    .updateTable("sessions")
    .set({ provision_claimed_until: leaseEnd(PROVISION_LEASE_MS) })
    .where("id", "in", (eb) =>
      eb
        .selectFrom("sessions")
        .select("id")
        .where("state", "=", "creating")
        .where((or) => or.or([or("origin", "=", "run"), or("destroy_after", "is", null)]))
        .where((or) =>
          or.or([
            or("provision_claimed_until", "is", null),
            or("provision_claimed_until", "<", lapsedBefore),
          ]),
        )
        .limit(50)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .returning(
      sql<number>`greatest(0, extract(epoch from clock_timestamp() - created_at))::float8 * 1000`.as(
        "age_ms",
      ),
    )
    .execute();
  return rows.map(({ age_ms: ageMs, ...session }) => ({ session: session as SessionRow, ageMs }));
}
