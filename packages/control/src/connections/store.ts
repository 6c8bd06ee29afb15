/** SQL that writes Connections, and the columns of sessions that concern them. */
import { sql } from "kysely";
import { IS_EXPIRED } from "../connection-records/columns.ts";
import type { ConnectionRow } from "../connection-records/store.ts";
import type { Queries } from "../db/pool.ts";
import type { SessionRow } from "../sessions/store.ts";
import { nextVersion } from "./columns.ts";

/** A Connection of one generation, with its sealed credential. */
export interface SealedConnection {
  name: string;
  host: string;
  auth_type: "bearer" | "header";
  header_name: string;
  methods: string[];
  paths: string[];
  generation: number;
  ttl_s: number;
  asked_ttl_s: number | null;
  sealed: Buffer;
  /** Whether a request is at work to bring it into force. */
  isBind?: boolean;
}

/** Longer than a request that binds waits for one answer of the node. */
const BIND_CLAIM_S = 30;

const inSeconds = (seconds: number) => sql<Date>`now() + make_interval(secs => ${seconds})`;

export async function insertConnections(
  db: Queries,
  sessionId: string,
  connections: readonly SealedConnection[],
): Promise<ConnectionRow[]> {
  const rows = connections.map(({ ttl_s, isBind, ...columns }) => ({
    session_id: sessionId,
    ...columns,
    bind_claimed_until: isBind ? inSeconds(BIND_CLAIM_S) : null,
    expires_at: inSeconds(ttl_s),
  }));
  return await db.insertInto("connections").values(rows).returningAll().returning(IS_EXPIRED).execute();
}

/** Replaces all but name and host. Undefined if the Connection was revoked or replaced since `known` was read. */
export async function replaceConnectionRow(
  db: Queries,
  known: Pick<ConnectionRow, "session_id" | "generation">,
  { name, host: _same, ttl_s, ...columns }: SealedConnection,
): Promise<ConnectionRow | undefined> {
  return await db
    .updateTable("connections")
    .set({
      ...columns,
      expires_at: inSeconds(ttl_s),
      expiry_emitted: false,
      bind_claimed_until: null,
      reflections: 0,
      suspended_at: null,
    })
    .where("session_id", "=", known.session_id)
    .where("name", "=", name)
    .where("generation", "=", known.generation)
    .where("revoked_at", "is", null)
    .returningAll()
    .returning(IS_EXPIRED)
    .executeTakeFirst();
}

type BindKey = Pick<ConnectionRow, "session_id" | "name" | "generation">;

/** The Connection of a bind that was not answered. One that was replaced meanwhile is another. */
function unanswered(db: Queries, { session_id, name, generation }: BindKey) {
  return db
    .updateTable("connections")
    .where("session_id", "=", session_id)
    .where("name", "=", name)
    .where("generation", "=", generation)
    .where("bind_claimed_until", "is not", null);
}

export async function markConfirmed(db: Queries, key: BindKey): Promise<void> {
  await unanswered(db, key).set({ bind_claimed_until: null }).execute();
}

export async function renewBind(db: Queries, key: BindKey): Promise<void> {
  await unanswered(db, key)
    .set({ bind_claimed_until: inSeconds(BIND_CLAIM_S) })
    .execute();
}

export async function releaseBind(db: Queries, key: BindKey): Promise<void> {
  await unanswered(db, key).set({ bind_claimed_until: sql<Date>`now()` }).execute();
}

/** Undefined while the claim of another request has not lapsed, and once the Connection's time is over. */
export async function takeOverBind(db: Queries, key: BindKey): Promise<ConnectionRow | undefined> {
  return await unanswered(db, key)
    .set({ bind_claimed_until: inSeconds(BIND_CLAIM_S) })
    .where(sql<boolean>`bind_claimed_until <= now()`)
    .where(sql<boolean>`expires_at > clock_timestamp()`)
    .returningAll()
    .returning(IS_EXPIRED)
    .executeTakeFirst();
}

/** Deletes the credential. Undefined if the Connection was revoked before. */
export async function revokeConnectionRow(
  db: Queries,
  sessionId: string,
  name: string,
): Promise<ConnectionRow | undefined> {
  return await db
    .updateTable("connections")
    .set({ revoked_at: sql<Date>`now()`, sealed: null })
    .where("session_id", "=", sessionId)
    .where("name", "=", name)
    .where("revoked_at", "is", null)
    .returningAll()
    .returning(IS_EXPIRED)
    .executeTakeFirst();
}

/** Locks the session's row, and raises the version of its Connections. Undefined once the session has ended. */
export async function raiseVersion(db: Queries, sessionId: string): Promise<SessionRow | undefined> {
  const row = await db
    .updateTable("sessions")
    .set({ connections_version: nextVersion(sql`connections_version`) })
    .where("id", "=", sessionId)
    .where("ca_key", "is not", null)
    .returningAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

/** Likewise above a version that the node has. Undefined if the row has that version, or a newer one. */
export async function raiseVersionAbove(
  db: Queries,
  sessionId: string,
  known: number,
): Promise<SessionRow | undefined> {
  const row = await db
    .updateTable("sessions")
    .set({ connections_version: nextVersion(sql`${known}::bigint`) })
    .where("id", "=", sessionId)
    .where("ca_key", "is not", null)
    .where("connections_version", "<", known)
    .returningAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

/** Writes the generation of a Connection with its credential, which is sealed for that generation. */
export async function saveGeneration(
  db: Queries,
  { session_id, name }: Pick<ConnectionRow, "session_id" | "name">,
  { generation, sealed }: { generation: number; sealed: Buffer },
): Promise<void> {
  await db
    .updateTable("connections")
    .set({ generation, sealed })
    .where("session_id", "=", session_id)
    .where("name", "=", name)
    .execute();
}

/** Locks sessions before their Connections, in the order of all changes, so that a report and a change cannot deadlock. */
export async function lockSessions(db: Queries, ids: readonly string[]): Promise<void> {
  await db
    .selectFrom("sessions")
    .select("id")
    .where("id", "in", ids)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute();
}

/** Sessions with Connections that have a machine, or may have one by what is in progress. */
export async function listBoundWithMachine(db: Queries): Promise<{ session_id: string; version: number }[]> {
  return await db
    .selectFrom("sessions")
    .select(["id as session_id", "connections_version as version"])
    .where("ca_key", "is not", null)
    .where((eb) => eb.or([eb("state", "in", ["creating", "live"]), eb("op", "is not", null)]))
    .execute();
}

/** Marks Connections that expired since the last call, and returns them. */
export async function markExpired(db: Queries, limit: number): Promise<ConnectionRow[]> {
  return await db
    .updateTable("connections")
    .set({ expiry_emitted: true })
    .where(({ eb, refTuple, selectFrom }) =>
      eb(
        refTuple("session_id", "name"),
        "in",
        selectFrom("connections")
          .select(["session_id", "name"])
          .where("revoked_at", "is", null)
          .where("expiry_emitted", "=", false)
          .where(sql<boolean>`expires_at <= now()`)
          .orderBy("session_id")
          .orderBy("name")
          .limit(limit)
          .forUpdate()
          .skipLocked()
          .$asTuple("session_id", "name"),
      ),
    )
    .returningAll()
    .returning(IS_EXPIRED)
    .execute();
}

/** The uses of one Connection in one report. */
export interface Uses {
  session_id: string;
  name: string;
  last_used_at: string | null;
  /** By generation; null: of a gateway that does not name it. */
  reflected: { generation: number | null; count: number }[];
}

/**
 * Adds uses, and suspends what reached `most` reflections. A reflection of a generation that was replaced meanwhile does not
 * count. `added`: the reflections that this call added.
 */
export async function addUses(
  db: Queries,
  uses: readonly Uses[],
  most: number,
): Promise<(ConnectionRow & { added: number })[]> {
  const { rows } = await sql<ConnectionRow & { added: number }>`
    with added as (
      select used.session_id, used.name, used.last_used_at, coalesce((
        select sum(one.count) from jsonb_to_recordset(used.reflected) as one (generation bigint, count integer)
        where coalesce(one.generation, known.generation) = known.generation
      ), 0)::integer as reflections
      from jsonb_to_recordset(${JSON.stringify(uses)}::jsonb) as used (
        session_id text, name text, last_used_at timestamptz, reflected jsonb
      )
      join connections known on known.session_id = used.session_id and known.name = used.name
    )
    update connections set
      last_used_at = greatest(connections.last_used_at, added.last_used_at),
      reflections = connections.reflections + added.reflections,
      suspended_at = case
        when connections.revoked_at is null and connections.reflections + added.reflections >= ${most}
        then coalesce(connections.suspended_at, now()) end
    from added
    where connections.session_id = added.session_id and connections.name = added.name
    returning connections.*, connections.expires_at <= now() as is_expired, added.reflections as added`.execute(
    db,
  );
  return rows;
}
