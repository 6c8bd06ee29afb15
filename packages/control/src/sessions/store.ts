import { type CreateTiming, LIMITS, type SessionState } from "@vivarium/contract/api";
import { type Insertable, type RawBuilder, type Selectable, sql } from "kysely";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { isUniqueViolation } from "../db/postgres-errors.ts";
import type { SessionTable } from "../db/tables.ts";
import { appendEvents, eventOf, newEventId } from "../events/append.ts";
import { tell } from "../moves/event-of-move.ts";
import {
  ACTIVE_STATES,
  entersLife,
  entersRest,
  FIRST_STATE,
  hasClocks,
  isAwaited,
  isFound,
  type Move,
  type Standing,
} from "./state.ts";

export type SessionRow = Omit<Selectable<SessionTable>, "state"> & { state: SessionState };
/** Leases of a new session are on the clock that ends them: the database's. */
type Leases = "destroy_after" | "provision_claimed_until";
export type NewSession = Omit<Insertable<SessionTable>, Leases> & { [lease in Leases]?: RawBuilder<Date> };

/** The state that a session wakes from. */
export const WAKES_FROM: SessionState = "paused";

export async function insertSession(db: Queries, session: NewSession): Promise<SessionRow | "name_taken"> {
  try {
    const row = await db.insertInto("sessions").values(session).returningAll().executeTakeFirstOrThrow();
    await tellCreated(db, [row as SessionRow]);
    return row as SessionRow;
  } catch (error) {
    if (isUniqueViolation(error, "sessions_name")) return "name_taken";
    throw error;
  }
}

/** Sessions without names, so that none can be taken. */
export async function insertNameless(
  db: Queries,
  sessions: readonly Omit<NewSession, "name">[],
): Promise<SessionRow[]> {
  const rows = (await db.insertInto("sessions").values(sessions).returningAll().execute()) as SessionRow[];
  await tellCreated(db, rows);
  return rows;
}

/** In the transaction of the insert. */
async function tellCreated(db: Queries, rows: readonly SessionRow[]): Promise<void> {
  const events = rows.map((row) =>
    eventOf(row, "session.created", {
      state: row.state,
      ...(row.origin_checkpoint_id !== null && { checkpoint_id: row.origin_checkpoint_id }),
    }),
  );
  await appendEvents(db, events);
}

/** Names are those of a project: what another one has in use is not told. */
export async function isNameTaken(
  db: Queries,
  orgId: string,
  projectId: string | null,
  name: string,
): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("org_id", "=", orgId)
    .where(sql`coalesce(project_id, '')`, "=", projectId ?? "")
    .where("name", "=", name)
    .where("state", "<>", "destroyed")
    .executeTakeFirst();
  return row !== undefined;
}

/** Sessions that hold a slot: all of the organisation, and those made with one key. */
export async function countActive(
  db: Queries,
  orgId: string,
  keyId: string,
): Promise<{ org: number; key: number }> {
  return await db
    .selectFrom("sessions")
    .select([
      sql<number>`count(*)::int`.as("org"),
      sql<number>`(count(*) filter (where key_id = ${keyId}))::int`.as("key"),
    ])
    .where("org_id", "=", orgId)
    .where((eb) =>
      eb.or([
        eb("state", "in", [...ACTIVE_STATES]),
        // A session that is waking up holds its slot already.
        eb.and([eb("state", "=", WAKES_FROM), eb("op", "in", ["wake", "restore"])]),
      ]),
    )
    .executeTakeFirstOrThrow();
}

export async function countPaused(db: Queries, orgId: string): Promise<number> {
  const { count } = await db
    .selectFrom("sessions")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("org_id", "=", orgId)
    .where("state", "in", ["paused", "lifetime_expired"])
    .executeTakeFirstOrThrow();
  return count;
}

/** Of all organisations, without those that are history. */
export async function countStates(db: Queries): Promise<{ state: SessionState; count: number }[]> {
  const rows = await db
    .selectFrom("sessions")
    .select(["state", sql<number>`count(*)::int`.as("count")])
    .where("state", "<>", "destroyed")
    .groupBy("state")
    .execute();
  return rows as { state: SessionState; count: number }[];
}

/** Any row of the caller's, history included. */
export async function findAnySession(db: Queries, scope: Scope, id: string): Promise<SessionRow | undefined> {
  let query = db.selectFrom("sessions").selectAll().where("id", "=", id).where("org_id", "=", scope.orgId);
  if (scope.projectId) query = query.where("project_id", "=", scope.projectId);
  return (await query.executeTakeFirst()) as SessionRow | undefined;
}

/** A row by id alone, for work that acts for nobody in particular. */
export async function findSessionById(db: Queries, id: string): Promise<SessionRow | undefined> {
  return (await db.selectFrom("sessions").selectAll().where("id", "=", id).executeTakeFirst()) as
    | SessionRow
    | undefined;
}

export interface Extra {
  statusReason?: string;
  timings?: CreateTiming;
  /**
   * The operation that this move commits and thereby ends, or that goes over to settling the session's machines.
   * Without one the move is refused while an operation holds the session, unless it overtakes.
   */
  operation?: { id: string; thenSettle?: boolean };
  overtakes?: boolean;
  snapshot?: { id: string; bytes: number };
  /** Address of the machine that the move brings. */
  guestIp?: string;
  wakeAt?: Date | null;
  /** Checkpoint that a restore goes back to. */
  restoredFrom?: string;
  /** The machine was not started by this database: its network may be another, and of this generation. */
  foundGeneration?: number;
}

/**
 * Writes a decided move, if the session still stands where it was decided on, and the event that tells of it: in one
 * statement, which draws the event's number while it holds the session's row.
 */
export async function saveMove(
  db: Queries,
  id: string,
  move: Move,
  extra: Extra = {},
): Promise<SessionRow | undefined> {
  const told = tell(move, extra);
  const update = updateOf(db, id, move, extra);
  if (!told) return (await update.executeTakeFirst()) as SessionRow | undefined;
  const row = await db
    .with("moved", () => update)
    .with("told", (within) =>
      within
        .insertInto("events")
        .columns(["id", "type", "org_id", "project_id", "session_id", "data"])
        .expression((eb) =>
          eb
            .selectFrom("moved")
            .select([
              sql<string>`${newEventId()}`.as("id"),
              sql<string>`${told.type}`.as("type"),
              "moved.org_id",
              "moved.project_id",
              "moved.id as session_id",
              sql<string>`${JSON.stringify(told.data)}::jsonb`.as("data"),
            ]),
        ),
    )
    .selectFrom("moved")
    .selectAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

function updateOf(db: Queries, id: string, move: Move, extra: Extra) {
  const now = sql<Date>`service_now()`;
  let update = db
    .updateTable("sessions")
    .set({
      state: move.state,
      incarnation: move.incarnation,
      state_changed_at: now,
      status_detail: null,
      provision_claimed_until: null,
      // The sweep finds out what is due when; better too early than too late.
      due_at: hasClocks(move.state) ? now : null,
      ...(extra.statusReason !== undefined && { status_reason: extra.statusReason }),
      ...(extra.timings && { timings: JSON.stringify(extra.timings) }),
      ...(move.incarnation !== move.from.incarnation && {
        last_active_at: now,
        // It was started with the network of the row, which stood since.
        network_applied: sql<number>`network_generation`,
        guest_ip: extra.guestIp ?? null,
      }),
      ...(extra.foundGeneration !== undefined && {
        network_generation: sql<number>`greatest(network_generation, ${extra.foundGeneration}::bigint) + 1`,
        network_applied: 0,
      }),
      wake_at: extra.wakeAt ?? null,
      wake_retry_at: null,
      wake_drop_at: null,
      ...(entersLife(move) && { live_since: now, paused_at: null }),
      ...(entersLife(move) && !isAwaited(move.from.state) && { resumed_at: now }),
      // What was caught up to was saved later than the row knew of: its rest begins no earlier than now.
      ...((entersRest(move) || move.event === "saved_state_found") && { paused_at: now }),
      ...(extra.snapshot && { snapshot_id: extra.snapshot.id, snapshot_bytes: extra.snapshot.bytes }),
      ...timeOfCommand(move),
      ...(extra.operation && operationAfter(extra.operation)),
      ...(move.endReason && {
        ended_at: now,
        end_reason: move.endReason,
        // Activity is told by another clock, and may have been written while this transaction was under way.
        last_active_at: sql<Date>`least(last_active_at, service_now())`,
        machine_released_at: null,
      }),
    })
    .where("id", "=", id)
    .where("state", "=", move.from.state)
    .where("incarnation", "=", move.from.incarnation);
  if (extra.operation) update = update.where("op_id", "=", extra.operation.id);
  else if (!extra.overtakes) update = update.where("op", "is", null);
  return update.returningAll();
}

/**
 * The only command of a session stands still with its machine: what is left of its time counts on from the wake. A
 * restore takes the session back to before it.
 */
function timeOfCommand(move: Move) {
  const isOnly = sql<boolean>`destroy_on_completion and origin = 'api'`;
  if (isFound(move)) return timeOfFoundCommand(move, isOnly);
  if (move.event === "restore") {
    return {
      destroy_after: sql<Date | null>`case when ${isOnly} then null else destroy_after end`,
      command_left_ms: null,
      command_goes_on: false,
    };
  }
  if (entersRest(move)) {
    return {
      command_left_ms: sql<number | null>`case when ${isOnly} and destroy_after is not null
        then greatest(0, extract(epoch from destroy_after - now()) * 1000)::bigint end`,
    };
  }
  if (!entersLife(move)) return {};
  return {
    destroy_after: sql<Date | null>`case when command_left_ms is null then destroy_after
      else now() + make_interval(secs => command_left_ms / 1000.0) end`,
    command_goes_on: sql<boolean>`command_left_ms is not null`,
    command_left_ms: null,
  };
}

/** At least as long as a command gets beyond its time. */
const FOUND_COMMAND_MS = 30_000;

/**
 * What the command of a backup had left when the session was last used counts from now, or from the wake. A session that was
 * still being made was handed out since, and has its lease no more.
 */
function timeOfFoundCommand({ from, state }: Move, isOnly: RawBuilder<boolean>) {
  if (isAwaited(from.state)) return { destroy_after: null, command_left_ms: null };
  const left = sql<number | null>`case when ${isOnly} and destroy_after is not null then greatest(
    coalesce(command_left_ms, extract(epoch from destroy_after - last_active_at) * 1000), ${FOUND_COMMAND_MS}
  )::bigint end`;
  if (state !== "live") {
    return {
      destroy_after: sql<Date | null>`case when ${isOnly} then destroy_after end`,
      command_left_ms: left,
    };
  }
  return {
    destroy_after: sql<Date | null>`now() + make_interval(secs => ${left} / 1000.0)`,
    command_goes_on: sql<boolean>`${left} is not null`,
    command_left_ms: null,
  };
}

function operationAfter({ thenSettle }: { thenSettle?: boolean }) {
  if (thenSettle) return { op: "settle" as const, op_input: "{}" };
  return { op: null, op_id: null, op_input: null, op_claimed_until: null };
}

/** Where the time of the start of its present machine went. */
export async function saveTimings(
  db: Queries,
  { id, incarnation }: Standing & { id: string },
  timings: CreateTiming,
): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ timings: JSON.stringify(timings) })
    .where("id", "=", id)
    .where("incarnation", "=", incarnation)
    .execute();
}

export async function markReleased(db: Queries, id: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ machine_released_at: sql<Date>`now()` })
    .where("id", "=", id)
    .execute();
}

export async function setStatusDetail(db: Queries, id: string, detail: string): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ status_detail: detail })
    .where("id", "=", id)
    .where("state", "=", "creating")
    .execute();
}

/** Sessions that are being made from the snapshot. */
export async function listUnborn(db: Queries, snapshotId: string): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("origin_snapshot_id", "=", snapshotId)
    .where("state", "=", FIRST_STATE)
    .execute();
  return rows as SessionRow[];
}

/** Whether a session is being started from the snapshot. */
export async function isOriginInUse(db: Queries, snapshotId: string): Promise<boolean> {
  const row = await db
    .selectFrom("sessions")
    .select("id")
    .where("origin_snapshot_id", "=", snapshotId)
    .where("state", "=", FIRST_STATE)
    .executeTakeFirst();
  return row !== undefined;
}

export async function listLiveMachines(db: Queries): Promise<SessionRow[]> {
  return (await db.selectFrom("sessions").selectAll().where("state", "=", "live").execute()) as SessionRow[];
}

export async function findSessionsById(db: Queries, ids: string[]): Promise<SessionRow[]> {
  if (ids.length === 0) return [];
  return (await db.selectFrom("sessions").selectAll().where("id", "in", ids).execute()) as SessionRow[];
}

/** Sessions whose machine may still exist although they hold none any more. */
export async function listUnreleased(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("machine_released_at", "is", null)
    .where("state", "in", ["failed", "destroyed"])
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

export async function listOldFailures(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("state", "=", "failed")
    .where("state_changed_at", "<", before(LIMITS.failedRetentionMs))
    .limit(100)
    .execute();
  return rows as SessionRow[];
}

export async function deleteOldHistory(db: Queries): Promise<void> {
  await db
    .deleteFrom("sessions")
    .where("state", "=", "destroyed")
    .where("machine_released_at", "is not", null)
    .where("ended_at", "<", before(LIMITS.historyRetentionMs))
    .execute();
}

/** Which of these snapshots sessions need, or operations on them are about to need. */
export async function findSnapshotsInUse(db: Queries, ids: string[]): Promise<string[]> {
  const found = await sql<{ id: string }>`
    select snapshot_id as id from sessions where snapshot_id = any(${ids}) and state <> 'destroyed'
    union select origin_snapshot_id from sessions where origin_snapshot_id = any(${ids}) and state = 'creating'
    union select op_input ->> 'snapshot_id' from sessions
      where op is not null and state <> 'destroyed' and op_input ->> 'snapshot_id' = any(${ids})`.execute(db);
  return found.rows.map(({ id }) => id);
}

function before(ms: number) {
  return sql<Date>`service_now() - make_interval(secs => ${ms / 1000})`;
}
