/** SQL that writes builds. One process follows a build at a time: it claims the row, and renews its claim. */
import type { BuildLines, BuildProgress } from "@vivarium/contract/api";
import { type Insertable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { TemplateBuildTable } from "../db/tables.ts";
import { type BuildRow, findBuildById, findNextQueued } from "../templates/build-store.ts";

/** Longer than a look at a build takes. */
const CLAIM_S = 20;
const claim = sql<Date>`now() + make_interval(secs => ${CLAIM_S})`;

/** Held by each change of the queue, so that its limits are exact. */
export async function lockQueue(tx: Queries): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext('vivarium template builds'))`.execute(tx);
}

export async function countUnfinished(db: Queries, orgId: string): Promise<{ own: number; all: number }> {
  return await db
    .selectFrom("template_builds")
    .select([
      sql<number>`(count(*) filter (where org_id = ${orgId}))::int`.as("own"),
      sql<number>`count(*)::int`.as("all"),
    ])
    .where("state", "in", ["queued", "building"])
    .executeTakeFirstOrThrow();
}

export async function insertBuild(
  db: Queries,
  build: Insertable<TemplateBuildTable>,
): Promise<"inserted" | "name_busy"> {
  try {
    await db.insertInto("template_builds").values(build).execute();
    return "inserted";
  } catch (error) {
    if (isUniqueViolation(error, "template_builds_unfinished")) return "name_busy";
    throw error;
  }
}

/** Earlier builds of the name that failed: their reason is not shown any more. */
export async function deleteFailed(
  db: Queries,
  { org_id, project_id, name }: Pick<BuildRow, "org_id" | "project_id" | "name">,
): Promise<void> {
  await db
    .deleteFrom("template_builds")
    .where("org_id", "=", org_id)
    .where("project_id", "is not distinct from", project_id)
    .where("name", "=", name)
    .where("state", "=", "failed")
    .execute();
}

/**
 * Claims the build that a dead process left, or else the next one of the queue whose time has come. Undefined if there is
 * none, or if another process follows one.
 */
export async function takeNext(tx: Queries): Promise<(BuildRow & { isFirst: boolean }) | undefined> {
  await lockQueue(tx);
  const running = await tx
    .selectFrom("template_builds")
    .select(["id", sql<boolean>`coalesce(claimed_until > now(), false)`.as("is_followed")])
    .where("state", "=", "building")
    .executeTakeFirst();
  if (running?.is_followed) return undefined;
  const id = running?.id ?? (await findNextQueued(tx));
  if (id === undefined) return undefined;
  await tx
    .updateTable("template_builds")
    .set({
      state: "building",
      claimed_until: claim,
      not_before: null,
      // At once: the order of the queue looks at it.
      ...(running === undefined && { begun_at: sql<Date>`now()` }),
    })
    .where("id", "=", id)
    .execute();
  const row = await findBuildById(tx, id);
  return row && { ...row, isFirst: !running };
}

/** Whether there is a build that nobody follows, and whose time has come. */
export async function hasWork(db: Queries): Promise<boolean> {
  const row = await db
    .selectFrom("template_builds")
    .select("id")
    .where((build) =>
      build.or([
        build.and([build("state", "=", "building"), build("claimed_until", "<=", sql<Date>`now()`)]),
        build.and([
          build("state", "=", "queued"),
          build.or([build("not_before", "is", null), build("not_before", "<=", sql<Date>`now()`)]),
        ]),
      ]),
    )
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

const building = (db: Queries, id: string) =>
  db.updateTable("template_builds").where("id", "=", id).where("state", "=", "building");

/** Counts an attempt, and begins its time. False if the build was deleted meanwhile. */
export async function beginAttempt(db: Queries, id: string): Promise<boolean> {
  const { numUpdatedRows } = await building(db, id)
    .set({ attempts: sql<number>`attempts + 1`, begun_at: sql<Date>`now()`, claimed_until: claim })
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Renews the claim. False if the build was deleted meanwhile. */
export async function noteProgress(
  db: Queries,
  id: string,
  progress: BuildProgress | null,
): Promise<boolean> {
  const { numUpdatedRows } = await building(db, id)
    .set({ progress: progress && JSON.stringify(progress), claimed_until: claim })
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Notes which image the reference means. What was noted first stays. */
export async function noteImage(db: Queries, id: string, image: string): Promise<void> {
  await building(db, id).where("image", "is", null).set({ image }).execute();
}

/** Lets another process follow the build, or this one later. */
export async function releaseClaim(db: Queries, id: string): Promise<void> {
  await building(db, id).set({ claimed_until: sql<Date>`now()` }).execute();
}

/** Puts a build back into the queue. */
export async function putBack(
  db: Queries,
  id: string,
  { afterMs, isAttempt }: { afterMs: number; isAttempt: boolean },
): Promise<void> {
  await building(db, id)
    .set({
      state: "queued",
      progress: null,
      claimed_until: null,
      not_before: sql<Date>`now() + make_interval(secs => ${afterMs / 1000})`,
      attempts: sql<number>`attempts - ${isAttempt ? 0 : 1}`,
    })
    .execute();
}

/** Ends a build. False if it was deleted, or ended by another process, meanwhile. */
export async function endBuild(
  db: Queries,
  id: string,
  end: { error: string | null; log: BuildLines["lines"] },
): Promise<boolean> {
  const { numUpdatedRows } = await building(db, id)
    .set({
      state: end.error === null ? "ready" : "failed",
      error: end.error,
      log: JSON.stringify(end.log),
      progress: null,
      claimed_until: null,
    })
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}
