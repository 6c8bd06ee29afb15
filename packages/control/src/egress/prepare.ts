/** The network of the machine that a paused, or restored, session gets: settled by the claim of the operation. */
import type { Queries } from "../db/pool.ts";
import type { ExposedPort } from "../db/tables.ts";
import type { NextNetwork } from "../sessions/operation-kinds.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { nextNetworkColumns } from "./columns.ts";
import { limitOf } from "./limit.ts";
import { saveWish } from "./network-store.ts";
import { dayUsageOf } from "./usage-store.ts";

/** Whoever takes the start over asks the node for the same: the wish stands until the machine is handed out. */
export async function nextNetwork(db: Queries, session: SessionRow): Promise<NextNetwork> {
  const usage = await dayUsageOf(db, session.id, nextMachineIdOf(session));
  return nextNetworkColumns(limitOf(session.egress_cap_bytes, usage));
}

/** The limit of the machine that the session has. */
export async function limitNow(db: Queries, session: SessionRow): Promise<number | null> {
  if (session.egress_cap_bytes === null) return null;
  return limitOf(session.egress_cap_bytes, await dayUsageOf(db, session.id, machineIdOf(session)));
}

/** Other ports of the session are exposed: a new wish, decided on the row as the caller has locked it. */
export async function wishExposed(
  tx: Queries,
  session: SessionRow,
  exposed: ExposedPort[],
): Promise<SessionRow> {
  const limitBytes = session.state === "live" ? await limitNow(tx, session) : undefined;
  const wish = await saveWish(tx, session, { exposed, limitBytes });
  if (!wish) throw new Error("a session's row moved while it was locked");
  return wish;
}
