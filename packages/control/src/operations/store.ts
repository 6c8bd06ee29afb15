import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import { dueIn } from "../deadlines/columns.ts";
import type { NextNetwork, OperationInput, OperationKind } from "../sessions/operation-kinds.ts";
import type { Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { NO_OPERATION } from "./columns.ts";

/**
 * Writes the intent into the row, if state and incarnation are unchanged and no operation is in flight. Also records
 * the name of the snapshot that the operation will make, which marks it as this database's own.
 */
export async function claimOperation(
  db: Queries,
  session: Standing & { id: string },
  op: {
    id: string;
    kind: OperationKind;
    input: OperationInput;
    leaseMs: number;
    /** Network of the machine that the operation starts, written with the claim. */
    network?: NextNetwork;
  },
): Promise<SessionRow | undefined> {
  const { snapshot_id: snapshotId } = op.input;
  const update = db
    .updateTable("sessions")
    .set({
      op: op.kind,
      op_id: op.id,
      op_input: JSON.stringify(op.input),
      op_claimed_until: leaseEnd(op.leaseMs),
      // In the same statement: a second update in one transaction would lock the referenced rows again.
      ...op.network,
    })
    .where("id", "=", session.id)
    .where("state", "=", session.state)
    .where("incarnation", "=", session.incarnation)
    .where("op", "is", null)
    .returningAll();
  if (snapshotId === undefined) return (await update.executeTakeFirst()) as SessionRow | undefined;
  const row = await db
    .with("claimed", () => update)
    .with("named", (within) =>
      within
        .insertInto("snapshot_names")
        .columns(["id"])
        .expression((eb) => eb.selectFrom("claimed").select(sql<string>`${snapshotId}`.as("id"))),
    )
    .selectFrom("claimed")
    .selectAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

/** Renews the claim. False if the session has ended, or the row does not have this operation any more. */
export async function renewOperation(
  db: Queries,
  sessionId: string,
  opId: string,
  leaseMs: number,
): Promise<boolean> {
  const row = await db
    .updateTable("sessions")
    .set({ op_claimed_until: leaseEnd(leaseMs) })
    .where("id", "=", sessionId)
    .where("op_id", "=", opId)
    .where("state", "<>", "destroyed")
    .returning("id")
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Ends an operation without changing the session. The deadlines are checked again after `lookAfterMs`. False if the row
 * does not have this operation any more.
 */
export async function clearOperation(
  db: Queries,
  sessionId: string,
  opId: string,
  lookAfterMs: number,
): Promise<boolean> {
  const row = await db
    .updateTable("sessions")
    .set({
      ...NO_OPERATION,
      ...dueIn(lookAfterMs),
    })
    .where("id", "=", sessionId)
    .where("op_id", "=", opId)
    .where("state", "<>", "destroyed")
    .returning("id")
    .executeTakeFirst();
  return row !== undefined;
}

/** Ends the claim at once, so that the next sweep of any process takes the operation over. */
export async function releaseOperation(db: Queries, sessionId: string, opId: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ op_claimed_until: sql<Date>`now()` })
    .where("id", "=", sessionId)
    .where("op_id", "=", opId)
    .execute();
}

/** Claims operations whose claim has lapsed. Each gets a new id, so that its old process cannot commit it any more. */
export async function claimLapsedOperations(
  db: Queries,
  { except, leaseMs, lapsedBefore }: { except: string[]; leaseMs: number; lapsedBefore: Date },
): Promise<SessionRow[]> {
  let lapsed = db
    .selectFrom("sessions")
    .select("id")
    .where("op", "is not", null)
    .where("state", "<>", "destroyed")
    .where("op_claimed_until", "<", lapsedBefore)
    .limit(50)
    .forUpdate()
    .skipLocked();
  if (except.length > 0) lapsed = lapsed.where("id", "not in", except);
  const rows = await db
    .updateTable("sessions")
    .set({ op_id: sql<string>`gen_random_uuid()::text`, op_claimed_until: leaseEnd(leaseMs) })
    .where("id", "in", lapsed)
    .returningAll()
    .execute();
  return rows as SessionRow[];
}

export async function insertName(db: Queries, id: string): Promise<void> {
  await db.insertInto("snapshot_names").values({ id }).execute();
}

/** Those of the ids that this database has recorded. */
export async function keepOnlyNamed(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db.selectFrom("snapshot_names").select("id").where("id", "in", ids).execute();
  return rows.map(({ id }) => id);
}

/** The next page of names, in order, that were recorded at least a day ago, without those in `except`. */
export async function listOldNames(
  db: Queries,
  { after: last, except }: { after: string; except: string[] },
): Promise<string[]> {
  const rows = await db
    .selectFrom("snapshot_names")
    .select("id")
    .where("id", ">", last)
    .where("named_at", "<", sql<Date>`now() - interval '1 day'`)
    .where(sql<boolean>`id <> all(${except})`)
    .orderBy("id")
    .limit(1_000)
    .execute();
  return rows.map(({ id }) => id);
}

export async function deleteNames(db: Queries, ids: string[]): Promise<void> {
  if (ids.length > 0) await db.deleteFrom("snapshot_names").where("id", "in", ids).execute();
}
