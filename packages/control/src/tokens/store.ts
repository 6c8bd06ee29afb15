/** SQL of scoped tokens, as their managers see them. */
import { type Insertable, type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { Tables } from "../db/tables.ts";

export type TokenRow = Selectable<Tables["session_tokens"]>;

export async function insertToken(db: Queries, row: Insertable<Tables["session_tokens"]>): Promise<TokenRow> {
  return await db.insertInto("session_tokens").values(row).returningAll().executeTakeFirstOrThrow();
}

/** Tokens that are neither revoked nor expired, newest first. */
export async function listTokens(db: Queries, sessionId: string): Promise<TokenRow[]> {
  return await db
    .selectFrom("session_tokens")
    .selectAll()
    .where("session_id", "=", sessionId)
    .where(IS_VALID)
    .orderBy("created_at", "desc")
    .orderBy("digest")
    .execute();
}

/** Whether there was such a token to revoke. */
export async function setRevoked(
  db: Queries,
  { sessionId, digest }: { sessionId: string; digest: Buffer },
): Promise<boolean> {
  const row = await db
    .updateTable("session_tokens")
    .set({ revoked_at: sql<Date>`now()` })
    .where("session_id", "=", sessionId)
    .where("digest", "=", digest)
    .where(IS_VALID)
    .returning("digest")
    .executeTakeFirst();
  return row !== undefined;
}

export async function deleteOldTokens(db: Queries): Promise<void> {
  await db
    .deleteFrom("session_tokens")
    .where(sql<boolean>`(expires_at < now() - interval '1 day' or revoked_at < now() - interval '1 day')`)
    .execute();
}

const IS_VALID = sql<boolean>`(revoked_at is null and expires_at > now())`;
