/** SQL of the desired network of sessions, and of the generation that their machines confirmed. */
import { type RawBuilder, sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { ExposedPort } from "../db/tables.ts";
import { NETWORK_FIXED_DURING } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { StoredPolicy } from "./entry.ts";

const NETWORK_IS_FREE = sql<boolean>`(op is null or op <> all(${[...NETWORK_FIXED_DURING]}::text[]))`;

/** Assignments to the columns of a session's Connections. */
export interface BoundColumns {
  connections_version: RawBuilder<number>;
  bound_hosts: RawBuilder<string[]>;
}

interface NetworkChange {
  egress?: StoredPolicy;
  limitBytes?: number | null;
  exposed?: ExposedPort[];
  /**
   * Not in a second update: that would lock the rows that foreign keys refer to, among them the organisation's, which claims
   * lock before the session's.
   */
  bound?: BoundColumns;
}

/**
 * Saves a desired network that was decided on this row. Undefined when state or network have changed meanwhile, or an
 * operation is in progress during which the network must not change.
 */
export async function saveDesiredNetwork(
  db: Queries,
  session: Pick<SessionRow, "id" | "state" | "network_generation">,
  { egress, limitBytes, exposed, bound }: NetworkChange,
): Promise<SessionRow | undefined> {
  const row = await db
    .updateTable("sessions")
    .set({
      network_generation: sql<number>`network_generation + 1`,
      ...(egress && { egress: JSON.stringify(egress) }),
      ...(limitBytes !== undefined && { egress_limit_bytes: limitBytes }),
      ...(exposed && { exposed: exposed.length > 0 ? JSON.stringify(exposed) : null }),
      ...bound,
    })
    .where("id", "=", session.id)
    .where("state", "=", session.state)
    .where("network_generation", "=", session.network_generation)
    .where(NETWORK_IS_FREE)
    .returningAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}

/** Records that the session's machine has confirmed this generation. */
export async function saveApplied(
  db: Queries,
  { id, incarnation, network_generation: generation }: SessionRow,
): Promise<void> {
  await db
    .updateTable("sessions")
    .set({ network_applied: sql<number>`greatest(network_applied, ${generation})` })
    .where("id", "=", id)
    .where("incarnation", "=", incarnation)
    .execute();
}

/** Live sessions whose machine lacks the desired network, or whose limit may change by time or cap. */
export async function listNetworksToReconcile(db: Queries): Promise<SessionRow[]> {
  const rows = await db
    .selectFrom("sessions")
    .selectAll()
    .where("state", "=", "live")
    .where((eb) =>
      eb.or([
        eb("network_applied", "<", eb.ref("network_generation")),
        eb("egress_cap_bytes", "is not", null),
        eb("egress_limit_bytes", "is not", null),
      ]),
    )
    .where(NETWORK_IS_FREE)
    .execute();
  return rows as SessionRow[];
}

/** Saves a live or paused session's cap and `wake_on_http`. The machine's limit follows with the next tick. */
export async function saveCap(
  db: Queries,
  session: SessionRow,
  { capBytes, wakeOnHttp }: { capBytes: number | null; wakeOnHttp?: boolean },
): Promise<SessionRow | undefined> {
  const row = await db
    .updateTable("sessions")
    .set({ egress_cap_bytes: capBytes, wake_on_http: wakeOnHttp })
    .where("id", "=", session.id)
    .where("state", "in", ["live", "paused"])
    .returningAll()
    .executeTakeFirst();
  return row as SessionRow | undefined;
}
