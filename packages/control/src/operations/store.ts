import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { dueIn } from "../deadlines/columns.ts";
import type { NextNetwork, OperationInput, OperationKind } from "../sessions/operation-kinds.ts";
import type { Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { NO_OPERATION } from "./columns.ts";

/**
 * Writes the intent into the row, if the session still stands where it was decided on and nothing else holds it; and for
 * good, as long as it exists, that a snapshot of this name is ours.
 */
export async function claimOperation(
  db: Queries,
  session: Standing & { id: string },
  op: {
    id: string;
    kind: OperationKind;
    input: OperationInput;
    leaseMs: number;
    /** Columns of another room that are written with the claim: the network of the machine that it starts. */
    besides?: NextNetwork;
  },
): Promise<SessionRow | undefined> {
  const { snapshot_id: snapshotId } = op.input;
  const update = db
    .updateTable("sessions")
    .set({
      op: op.kind,
      op_id: op.id,
      op_input: JSON.stringify(op.input),
      op_claimed_until: after(op.leaseMs),
      // In the same statement: a row that its transaction writes twice has its references locked anew.
      ...op.besides,
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

/** Renews the lease; false when the session is gone or the operation belongs to another process by now. */
export async function renewOperation(
  db: Queries,
  sessionId: string,
  opId: string,
  leaseMs: number,
): Promise<boolean> {
  const row = await db
    .updateTable("sessions")
    .set({ op_claimed_until: after(leaseMs) })
    .where("id", "=", sessionId)
    .where("op_id", "=", opId)
    .where("state", "<>", "destroyed")
    .returning("id")
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Ends an operation that leaves the session as it was, whose deadlines are looked at again so much later; false when it
 * was not this process's to end.
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

/** Gives the lease back: whoever looks next takes the operation up again. */
export async function releaseOperation(db: Queries, sessionId: string, opId: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ op_claimed_until: sql<Date>`now()` })
    .where("id", "=", sessionId)
    .where("op_id", "=", opId)
    .execute();
}

/** Operations whose claim ended before. Each gets a new name, so that its old process can commit nothing any more. */
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
    .set({ op_id: sql<string>`gen_random_uuid()::text`, op_claimed_until: after(leaseMs) })
    .where("id", "in", lapsed)
    .returningAll()
    .execute();
  return rows as SessionRow[];
}

export async function insertName(db: Queries, id: string): Promise<void> {
  await db.insertInto("snapshot_names").values({ id }).execute();
}

/** Which of these are names that were given here. */
export async function keepOnlyNamed(db: Queries, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await db.selectFrom("snapshot_names").select("id").where("id", "in", ids).execute();
  return rows.map(({ id }) => id);
}

/** The next names, in their order, that were given a day ago or earlier, but for these. */
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

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}
