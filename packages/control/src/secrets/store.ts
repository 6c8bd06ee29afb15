/** SQL of sealed values, and of the data keys that open them. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { Owner, ValueKind, WrappedKey } from "./data-key.ts";

export interface SealedValue {
  session_id: string;
  kind: ValueKind;
  /** Names of secrets; empty for variables. */
  names: string[];
  sealed: Buffer;
}

export async function insertSealedValues(db: Queries, values: readonly SealedValue[]): Promise<void> {
  if (values.length > 0) await db.insertInto("sealed_values").values(values).execute();
}

export async function listSealedValues(db: Queries, sessionIds: readonly string[]): Promise<SealedValue[]> {
  if (sessionIds.length === 0) return [];
  const rows = await db
    .selectFrom("sealed_values")
    .selectAll()
    .where("session_id", "in", sessionIds)
    .execute();
  return rows as SealedValue[];
}

/** Secrets have no `sealed`, since records show only their names. */
type ShownValue = Omit<SealedValue, "sealed"> & { sealed: Buffer | null };

/** The part of sealed values that records show. The secrets themselves would make a long list ten times as slow. */
export async function listShownValues(db: Queries, sessionIds: readonly string[]): Promise<ShownValue[]> {
  if (sessionIds.length === 0) return [];
  const rows = await db
    .selectFrom("sealed_values")
    .select(["session_id", "kind", "names"])
    .select(sql<Buffer | null>`case when kind = 'env' then sealed end`.as("sealed"))
    .where("session_id", "in", sessionIds)
    .execute();
  return rows as ShownValue[];
}

/** Tables with variables, which a service without a key-encryption key keeps unsealed. */
export const VARIABLE_TABLES = ["sessions", "checkpoints"] as const;
export type VariableTable = (typeof VARIABLE_TABLES)[number];
/** Tables with wrapped data keys. */
export const KEY_TABLES = [
  ...VARIABLE_TABLES,
  "templates",
  "artifacts",
  "registry_credentials",
  "archive_spaces",
  "archives",
] as const;
export type KeyTable = (typeof KEY_TABLES)[number];

/** How many data keys each key-encryption key wraps, by its id. */
export async function countDataKeys(db: Queries): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const table of KEY_TABLES) {
    const rows = await db
      .selectFrom(table)
      .select(["kek_id", sql<number>`count(*)::int`.as("count")])
      .where("kek_id", "is not", null)
      .groupBy("kek_id")
      .execute();
    for (const { kek_id, count } of rows)
      counts.set(String(kek_id), (counts.get(String(kek_id)) ?? 0) + count);
  }
  return counts;
}

/** How many sessions and checkpoints have variables that are not sealed. */
export async function countUnsealed(db: Queries): Promise<number> {
  const counts = await Promise.all(
    VARIABLE_TABLES.map((table) =>
      db
        .selectFrom(table)
        .select(sql<number>`count(*)::int`.as("count"))
        .where("env", "is not", null)
        .executeTakeFirstOrThrow(),
    ),
  );
  return counts.reduce((sum, { count }) => sum + count, 0);
}

/** Data keys that the key-encryption key `kekId` wraps. */
export async function listWrappedBy(
  db: Queries,
  table: KeyTable,
  kekId: string,
  { after, limit }: { after: string; limit: number },
): Promise<(Owner & WrappedKey)[]> {
  const rows = await db
    .selectFrom(table)
    .select(["id", "org_id", "kek_id", "data_key"])
    .where("kek_id", "=", kekId)
    .where("id", ">", after)
    .orderBy("id")
    .limit(limit)
    .execute();
  return rows as (Owner & WrappedKey)[];
}

/** Writes the new wrapping, unless the row was shredded or wrapped by another process meanwhile. */
export async function replaceWrapping(
  db: Queries,
  table: KeyTable,
  old: Owner & WrappedKey,
  { kek_id, data_key }: WrappedKey,
): Promise<void> {
  await db
    .updateTable(table)
    .set({ kek_id, data_key })
    .where("id", "=", old.id)
    .where("data_key", "=", old.data_key)
    .execute();
}

interface Unsealed extends Owner {
  env: Record<string, string>;
}

/** Deletes variables that sessions of before the seals kept after their end. */
export async function deleteUnsealedOfEnded(db: Queries): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ env: null })
    .where("env", "is not", null)
    .where("ended_at", "is not", null)
    .execute();
}

/**
 * Rows whose variables are not sealed, because the service had no key-encryption key when they were written. Without ended
 * sessions, whose variables are deleted.
 */
export async function listUnsealed(db: Queries, table: VariableTable, limit: number): Promise<Unsealed[]> {
  const rows = await db
    .selectFrom(table)
    .select(["id", "org_id", "env"])
    .where("env", "is not", null)
    .where("kek_id", "is", null)
    .$if(table === "sessions", (query) => query.where(sql<boolean>`ended_at is null`))
    .limit(limit)
    .forUpdate()
    .skipLocked()
    .execute();
  return rows as Unsealed[];
}

export async function sealSession(db: Queries, id: string, { kek_id, data_key }: WrappedKey): Promise<void> {
  await db.updateTable("sessions").set({ kek_id, data_key, env: null }).where("id", "=", id).execute();
}

export async function sealCheckpoint(
  db: Queries,
  id: string,
  { kek_id, data_key, sealed_env }: WrappedKey & { sealed_env: Buffer },
): Promise<void> {
  await db
    .updateTable("checkpoints")
    .set({ kek_id, data_key, sealed_env, env: null })
    .where("id", "=", id)
    .execute();
}

/** Held by the one process that adds a key-encryption key. */
export async function lockRotation(db: Queries): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext('vivarium kek rotation'))`.execute(db);
}
