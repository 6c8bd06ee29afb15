/** SQL of exposed ports. */
import { type Selectable, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ExposedPort, PreviewRouteTable } from "../db/tables.ts";
import type { SessionRow } from "../sessions/store.ts";

export type RouteRow = Selectable<PreviewRouteTable>;

export async function findRoute(db: Queries, sessionId: string, port: number): Promise<RouteRow | undefined> {
  return await db
    .selectFrom("preview_routes")
    .selectAll()
    .where("session_id", "=", sessionId)
    .where("port", "=", port)
    .executeTakeFirst();
}

export async function countRoutes(db: Queries, sessionId: string): Promise<number> {
  const { count } = await db
    .selectFrom("preview_routes")
    .select(sql<number>`count(*)::int`.as("count"))
    .where("session_id", "=", sessionId)
    .executeTakeFirstOrThrow();
  return count;
}

/** Locks the session's row until the transaction ends, so that its routes change one after the other. */
export async function lockSession(tx: Queries, id: string): Promise<SessionRow | undefined> {
  const row = await tx.selectFrom("sessions").selectAll().where("id", "=", id).forUpdate().executeTakeFirst();
  return row as SessionRow | undefined;
}

export async function putRoute(db: Queries, route: RouteRow): Promise<void> {
  const { session_id: _sessionId, port: _port, ...settings } = route;
  await db
    .insertInto("preview_routes")
    .values(route)
    .onConflict((conflict) => conflict.columns(["session_id", "port"]).doUpdateSet(settings))
    .execute();
}

/** Returns the deleted route. */
export async function deleteRoute(db: Queries, sessionId: string, port: number) {
  return await db
    .deleteFrom("preview_routes")
    .where("session_id", "=", sessionId)
    .where("port", "=", port)
    .returningAll()
    .executeTakeFirst();
}

/** The fields that the whole organisation may see. */
export function publicFields({ port, visibility, auth }: ExposedPort) {
  return { port, visibility, auth };
}

/** Records that the caller gets the bearer token of this version of the route. */
export async function markBearerDelivered(db: Queries, route: RouteRow): Promise<void> {
  await db
    .updateTable("preview_routes")
    .set({ is_bearer_told: true })
    .where("session_id", "=", route.session_id)
    .where("port", "=", route.port)
    .where("version", "=", route.version)
    .execute();
}

/** The part of the routes that is copied into the session's row. */
export async function listExposed(db: Queries, sessionId: string): Promise<ExposedPort[]> {
  return await db
    .selectFrom("preview_routes")
    .select(["port", "visibility", "auth"])
    .where("session_id", "=", sessionId)
    .orderBy("port")
    .execute();
}

export type RouteOfSession = RouteRow & Pick<SessionRow, "org_id" | "state" | "wake_on_http">;

/** All routes of sessions that are not destroyed. */
export async function listRoutes(db: Queries): Promise<RouteOfSession[]> {
  const rows = await db
    .selectFrom("preview_routes")
    .innerJoin("sessions", "sessions.id", "preview_routes.session_id")
    .selectAll("preview_routes")
    .select(["sessions.org_id", "sessions.state", "sessions.wake_on_http"])
    .where("sessions.state", "<>", "destroyed")
    .orderBy("session_id")
    .orderBy("port")
    .execute();
  return rows as RouteOfSession[];
}

/** Deletes the routes of destroyed sessions, with their credentials. */
export async function deleteRoutesOfEnded(db: Queries): Promise<void> {
  await sql`delete from preview_routes using sessions
    where sessions.id = preview_routes.session_id and sessions.state = 'destroyed'`.execute(db);
}

/** The next version of a route, or of the node's table. */
export async function nextVersion(
  db: Queries,
  sequence: "preview_versions" | "preview_table_versions",
): Promise<number> {
  const found = await sql<{ version: number }>`select nextval(${sequence}::regclass) as version`.execute(db);
  const version = found.rows[0]?.version;
  if (version === undefined) throw new Error("the database gave no next version");
  return version;
}

/** The last table version that any process drew. */
export async function lastTableVersion(db: Queries): Promise<number | undefined> {
  type Row = { version: number };
  const found = await sql<Row>`select last_value as version from preview_table_versions`.execute(db);
  return found.rows[0]?.version;
}

/** Moves the sequence past the node's version, which may be the higher one after a restore from a backup. */
export async function skipTableVersions(db: Queries, known: number): Promise<void> {
  await sql`select setval('preview_table_versions', greatest(${known}, nextval('preview_table_versions')))`.execute(
    db,
  );
}
