/** SQL of idempotency keys. */
import { LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

interface KeyOfOrg {
  orgId: string;
  key: string;
}

/** Locks the key until the transaction ends. False if another transaction has locked it. */
export async function tryLockKey(tx: Queries, { orgId, key }: KeyOfOrg): Promise<boolean> {
  const name = `${orgId} ${key}`;
  const lock = await sql<{ held: boolean }>`
    select pg_try_advisory_xact_lock(hashtextextended(${name}, 0)) as held`.execute(tx);
  return lock.rows[0]?.held ?? false;
}

export async function findIdempotencyKey(db: Queries, { orgId, key }: KeyOfOrg) {
  return await db
    .selectFrom("idempotency_keys")
    .select(["session_id as sessionId", "body_digest as bodyDigest"])
    .select(sql<boolean>`created_at < ${oldest()}`.as("isExpired"))
    .where("org_id", "=", orgId)
    .where("key", "=", key)
    .executeTakeFirst();
}

export async function insertIdempotencyKey(
  db: Queries,
  { orgId, key, bodyDigest, sessionId }: KeyOfOrg & { bodyDigest: Buffer; sessionId: string },
): Promise<void> {
  await db
    .insertInto("idempotency_keys")
    .values({ org_id: orgId, key, body_digest: bodyDigest, session_id: sessionId })
    .execute();
}

export async function deleteIdempotencyKey(db: Queries, { orgId, key }: KeyOfOrg): Promise<void> {
  await db.deleteFrom("idempotency_keys").where("org_id", "=", orgId).where("key", "=", key).execute();
}

export async function deleteOldIdempotencyKeys(db: Queries): Promise<void> {
  await db.deleteFrom("idempotency_keys").where("created_at", "<", oldest()).execute();
}

function oldest() {
  return sql<Date>`now() - make_interval(secs => ${LIMITS.idempotencyWindowMs / 1000})`;
}
