/** SQL of the operation columns of a session, and of the names of snapshots that operations asked for. */
import { randomId } from "@vivarium/kit/id";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import { dueIn } from "../deadlines/columns.ts";
import type { NextNetwork, OperationInput, OperationKind } from "../sessions/operation-kinds.ts";
import type { Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { NO_OPERATION } from "./columns.ts";
import type { Operation } from "./operations.ts";

/** How long a claim lasts without renewal. */
export const OPERATION_LEASE_MS = 5_000;

/**
 * Writes the intent into the row, if state and incarnation are unchanged and no operation is in flight. Also records
 * the name of the snapshot that the operation will make, which marks it as this database's own.
 */
export async function claimOperation(
  db: Queries,
  { id, state, incarnation }: Standing & { id: string },
  { kind, input, network }: { kind: OperationKind; input: OperationInput; network?: NextNetwork },
): Promise<SessionRow | undefined> {
  const { snapshot_id: snapshotId } = input;
  const update = db
    .updateTable("sessions")
    .set({
      op: kind,
      op_id: randomId(),
      op_input: JSON.stringify(input),
      op_claimed_until: leaseEnd(OPERATION_LEASE_MS),
      // Not in a second update, which would lock the rows that foreign keys refer to again.
      ...network,
    })
    .where((row) => row.and({ id, state, incarnation, op: null }))
    .returningAll()
    .$castTo<SessionRow>();
  if (snapshotId === undefined) return await update.executeTakeFirst();
  return await db
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
}

/** Renews the claim. False if the session has ended, or the row does not have this operation any more. */
export async function renewOperation(db: Queries, op: Operation): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("sessions")
    .set({ op_claimed_until: leaseEnd(OPERATION_LEASE_MS) })
    .where((row) => row.and({ id: op.session.id, op_id: op.id }))
    .where("state", "<>", "destroyed")
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/**
 * Ends an operation without changing the session. The deadlines are checked again after `lookAfterMs`. False if the row
 * does not have this operation any more.
 */
export async function clearOperation(db: Queries, op: Operation, lookAfterMs: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable("sessions")
    .set({ ...NO_OPERATION, ...dueIn(lookAfterMs) })
    .where((row) => row.and({ id: op.session.id, op_id: op.id }))
    .where("state", "<>", "destroyed")
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Ends the claim at once, so that the next sweep of any process takes the operation over. */
export async function releaseOperation(db: Queries, op: Operation): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ op_claimed_until: sql<Date>`now()` })
    .where((row) => row.and({ id: op.session.id, op_id: op.id }))
    .execute();
}

/** Claims operations whose claim has lapsed. Each gets a new id, so that its old process cannot commit it any more. */
export async function claimLapsedOperations(
  db: Queries,
  { except, lapsedBefore }: { except: string[]; lapsedBefore: Date },
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
  return await db
    .updateTable("sessions")
    .set({
      op_id: sql<string>`gen_random_uuid()::text`,
      op_claimed_until: leaseEnd(OPERATION_LEASE_MS),
    })
    .where("id", "in", lapsed)
    .returningAll()
    .$castTo<SessionRow>()
    .execute();
}

/** Keeps only the snapshots that operations of this database asked for, whether or not a row still refers to them. */
export async function keepOnlyNamed(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db.selectFrom("snapshot_names").select("id").where("id", "in", ids).execute();
  return rows.map(({ id }) => id);
}

/** Deletes names, a day old or more, of snapshots neither on the node (`listed`) nor referred to by rows (`owners`). */
export async function deleteOldNames(
  db: Queries,
  listed: string[],
  owners: (ids: string[]) => Promise<Set<string>>,
): Promise<void> {
  const inOrder = db
    .selectFrom("snapshot_names")
    .select("id")
    .where("named_at", "<", sql<Date>`now() - interval '1 day'`)
    .where(sql<boolean>`id <> all(${listed})`)
    .orderBy("id")
    .limit(1_000);
  let last: string | undefined = "";
  while (last !== undefined) {
    const page: { id: string }[] = await inOrder.where("id", ">", last).execute();
    const ids = page.map(({ id }) => id);
    const owned = await owners(ids);
    const gone = ids.filter((id) => !owned.has(id));
    if (gone.length > 0) await db.deleteFrom("snapshot_names").where("id", "in", gone).execute();
    last = ids.at(-1);
  }
}
