/** SQL of organisations, projects, API keys and the installation. */
import { ID_PREFIXES } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { TODAY } from "../db/time.ts";
import type { Principal, Scope } from "./principal.ts";

/**
 * SQL condition on a row of `api_keys`: it is neither revoked nor expired. `now()` is when the transaction began, and a key may
 * expire while a transaction waits for a lock.
 */
const IS_VALID = sql<boolean>`(api_keys.revoked_at is null and (api_keys.expires_at is null or api_keys.expires_at > clock_timestamp()))`;

/** The principal of a key's digest, unless the key is revoked or expired. */
export async function findPrincipal(db: Queries, digest: Buffer): Promise<Principal | undefined> {
  const row = await db
    .selectFrom("api_keys")
    .innerJoin("orgs", "orgs.id", "api_keys.org_id")
    .select(["api_keys.id", "org_id", "scoped_project_id", "default_project_id"])
    .select(["api_keys.concurrent_sessions", "api_keys.role", "api_keys.expires_at", "orgs.suspended"])
    .where("digest", "=", digest)
    .where(IS_VALID)
    .executeTakeFirst();
  return (
    row && {
      kind: "api_key",
      credentialId: row.id,
      keyId: row.id,
      expiresAt: row.expires_at,
      orgId: row.org_id,
      isSuspended: row.suspended,
      role: row.role,
      scopedProjectId: row.scoped_project_id,
      defaultProjectId: row.default_project_id,
      concurrentSessions: row.concurrent_sessions,
    }
  );
}

/** SQL condition on a row of `session_tokens`: it is neither revoked nor expired. */
const IS_TOKEN_VALID = sql<boolean>`(session_tokens.revoked_at is null and session_tokens.expires_at > now())`;

/** The principal of a token's digest, unless the token or its session has ended. */
export async function findTokenPrincipal(db: Queries, digest: Buffer): Promise<Principal | undefined> {
  const row = await db
    .selectFrom("session_tokens")
    .innerJoin("sessions", "sessions.id", "session_tokens.session_id")
    .innerJoin("orgs", "orgs.id", "session_tokens.org_id")
    .select(["session_tokens.org_id", "session_tokens.key_id", "session_tokens.expires_at", "capabilities"])
    .select(["sessions.id as session_id", "sessions.project_id", "orgs.suspended"])
    .where("digest", "=", digest)
    .where("sessions.state", "<>", "destroyed")
    .where(IS_TOKEN_VALID)
    .executeTakeFirst();
  return (
    row && {
      kind: "scoped_token",
      credentialId: digest.toString("hex"),
      keyId: row.key_id ?? "",
      expiresAt: row.expires_at,
      orgId: row.org_id,
      isSuspended: row.suspended,
      role: "full",
      session: { id: row.session_id, capabilities: row.capabilities },
      scopedProjectId: row.project_id,
      defaultProjectId: row.project_id,
      concurrentSessions: null,
    }
  );
}

/** The key of a digest, whether or not it has ended. */
export async function findEndedKey(db: Queries, digest: Buffer) {
  const row = await db
    .selectFrom("api_keys")
    .select(["id", "org_id"])
    .where("digest", "=", digest)
    .executeTakeFirst();
  return row && { kind: "api_key" as const, id: row.id, orgId: row.org_id };
}

/** The scoped token of a digest, whether or not it has ended. */
export async function findEndedToken(db: Queries, digest: Buffer) {
  const row = await db
    .selectFrom("session_tokens")
    .select("org_id")
    .where("digest", "=", digest)
    .executeTakeFirst();
  return row && { kind: "scoped_token" as const, id: digest.toString("hex"), orgId: row.org_id };
}

/** Those of the tokens, by hash, that are neither revoked nor expired, and whose session has not ended. */
export async function listValidTokens(db: Queries, hashes: string[]): Promise<string[]> {
  const rows = await db
    .selectFrom("session_tokens")
    .innerJoin("sessions", "sessions.id", "session_tokens.session_id")
    .select("digest")
    .where(
      "digest",
      "in",
      hashes.map((hash) => Buffer.from(hash, "hex")),
    )
    .where("sessions.state", "<>", "destroyed")
    .where(IS_TOKEN_VALID)
    .execute();
  return rows.map(({ digest }) => digest.toString("hex"));
}

/** Notes that a token was used, to the minute. */
export async function noteTokenUse(db: Queries, hash: string): Promise<void> {
  await db
    .updateTable("session_tokens")
    .set({ last_used_at: sql<Date>`now()` })
    .where("digest", "=", Buffer.from(hash, "hex"))
    .where(sql<boolean>`coalesce(last_used_at < now() - interval '1 minute', true)`)
    .execute();
}

/** Those of the keys that are neither revoked nor expired. */
export async function listValidKeys(db: Queries, ids: string[]): Promise<string[]> {
  const rows = await db.selectFrom("api_keys").select("id").where("id", "in", ids).where(IS_VALID).execute();
  return rows.map(({ id }) => id);
}

/** Notes that a key was used, to the minute. A key of an earlier version also gets the part that lists show. */
export async function noteUse(db: Queries, { id, prefix }: { id: string; prefix: string }): Promise<void> {
  await db
    .updateTable("api_keys")
    .set({ last_used_at: sql<Date>`now()`, prefix })
    .where("id", "=", id)
    .where(sql<boolean>`(coalesce(last_used_at < now() - interval '1 minute', true) or prefix is null)`)
    .execute();
}

/** A key's expiry (null: never), unless the key is revoked or expired. */
export async function findValidKey(
  db: Queries,
  keyId: string,
): Promise<{ expires_at: Date | null } | undefined> {
  return await db
    .selectFrom("api_keys")
    .select("expires_at")
    .where("id", "=", keyId)
    .where(IS_VALID)
    .executeTakeFirst();
}

/** A project is deleted only while the organisation's row is locked: with that lock the answer holds until the transaction ends. */
export async function hasProject(db: Queries, orgId: string, projectId: string): Promise<boolean> {
  const row = await db
    .selectFrom("projects")
    .select("id")
    .where("org_id", "=", orgId)
    .where("id", "=", projectId)
    .where("deleted_at", "is", null)
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
 * time. `ownCeiling` is null for an organisation that has the service's ceiling of sessions.
 */
export async function lockOrg(
  db: Queries,
  orgId: string,
): Promise<{ ownCeiling: number | null; isEgressCapped: boolean }> {
  return await db
    .selectFrom("orgs")
    .select("concurrent_sessions as ownCeiling")
    .select(sql<boolean>`coalesce(egress_capped_on = ${TODAY}, false)`.as("isEgressCapped"))
    .where("id", "=", orgId)
    .forUpdate()
    .executeTakeFirstOrThrow();
}

/** How many organisations have a ceiling of sessions of their own. */
export async function countOwnCeilings(db: Queries): Promise<number> {
  const { count } = await db
    .selectFrom("orgs")
    .select(sql<number>`count(*)::integer`.as("count"))
    .where("concurrent_sessions", "is not", null)
    .executeTakeFirstOrThrow();
  return count;
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
  { digest, prefix }: { digest: Buffer; prefix: string },
): Promise<void> {
  const org = { id: ID_PREFIXES.org + randomId(), name: "default" };
  const project = { id: ID_PREFIXES.project + randomId(), org_id: org.id, name: "default", is_default: true };
  const keyId = ID_PREFIXES.apiKey + randomId();
  const key = {
    id: keyId,
    org_id: org.id,
    default_project_id: project.id,
    name: "bootstrap",
    digest,
    prefix,
  };
  await db.insertInto("orgs").values(org).execute();
  await db.insertInto("projects").values(project).execute();
  await db.insertInto("api_keys").values(key).execute();
}
