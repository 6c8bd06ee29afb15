/** SQL of organisations, projects, API keys and the installation. */
import { ID_PREFIXES } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { TODAY } from "../db/time.ts";
import type { Principal, Scope } from "./principal.ts";

/** The principal of a key's digest, unless the key is revoked or expired. */
export async function findPrincipal(db: Queries, digest: Buffer): Promise<Principal | undefined> {
  const row = await db
    .selectFrom("api_keys")
    .innerJoin("orgs", "orgs.id", "api_keys.org_id")
    .select(["api_keys.id", "org_id", "scoped_project_id", "default_project_id"])
    .select(["api_keys.concurrent_sessions", "orgs.suspended"])
    .where("digest", "=", digest)
    .where("revoked_at", "is", null)
    .where((eb) => eb.or([eb("expires_at", "is", null), eb("expires_at", ">", sql<Date>`now()`)]))
    .executeTakeFirst();
  return (
    row && {
      keyId: row.id,
      orgId: row.org_id,
      isSuspended: row.suspended,
      scopedProjectId: row.scoped_project_id,
      defaultProjectId: row.default_project_id,
      concurrentSessions: row.concurrent_sessions,
    }
  );
}

export async function hasProject(db: Queries, orgId: string, projectId: string): Promise<boolean> {
  const row = await db
    .selectFrom("projects")
    .select("id")
    .where("org_id", "=", orgId)
    .where("id", "=", projectId)
    .executeTakeFirst();
  return row !== undefined;
}

/** SQL condition on `org_id` and `project_id`: only rows that the caller may see. */
export function isInScope({ orgId, projectId }: Scope) {
  return projectId === null
    ? sql<boolean>`org_id = ${orgId}`
    : sql<boolean>`(org_id = ${orgId} and project_id = ${projectId})`;
}

export async function findOrg(db: Queries, orgId: string) {
  return await db.selectFrom("orgs").selectAll().where("id", "=", orgId).executeTakeFirstOrThrow();
}

/**
 * Locks the organisation's row until the transaction ends, so that its sessions are counted by one transaction at a
 * time.
 */
export async function lockOrg(
  db: Queries,
  orgId: string,
): Promise<{ concurrentSessions: number; isEgressCapped: boolean }> {
  return await db
    .selectFrom("orgs")
    .select("concurrent_sessions as concurrentSessions")
    .select(sql<boolean>`coalesce(egress_capped_on = ${TODAY}, false)`.as("isEgressCapped"))
    .where("id", "=", orgId)
    .forUpdate()
    .executeTakeFirstOrThrow();
}

export async function findKeyCeiling(db: Queries, keyId: string): Promise<number | null> {
  const row = await db
    .selectFrom("api_keys")
    .select("concurrent_sessions")
    .where("id", "=", keyId)
    .executeTakeFirst();
  return row?.concurrent_sessions ?? null;
}

export async function findPepperCheck(db: Queries): Promise<Buffer | undefined> {
  const row = await db.selectFrom("installation").select("pepper_check").executeTakeFirst();
  return row?.pepper_check;
}

export async function insertInstallation(db: Queries, pepperCheck: Buffer): Promise<void> {
  await db.insertInto("installation").values({ pepper_check: pepperCheck }).execute();
}

export async function lockBootstrap(db: Queries): Promise<void> {
  await sql`select pg_advisory_xact_lock(7483920118)`.execute(db);
}

/** Inserts an organisation with its default project and its first key. */
export async function insertTenant(
  db: Queries,
  { digest, concurrentSessions }: { digest: Buffer; concurrentSessions: number },
): Promise<void> {
  const org = { id: ID_PREFIXES.org + randomId(), name: "default", concurrent_sessions: concurrentSessions };
  const project = { id: ID_PREFIXES.project + randomId(), org_id: org.id, name: "default", is_default: true };
  const keyId = ID_PREFIXES.apiKey + randomId();
  const key = { id: keyId, org_id: org.id, default_project_id: project.id, name: "bootstrap", digest };
  await db.insertInto("orgs").values(org).execute();
  await db.insertInto("projects").values(project).execute();
  await db.insertInto("api_keys").values(key).execute();
}
