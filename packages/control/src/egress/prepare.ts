/** The network of the machine that a paused, or restored, session gets: settled in the transaction that claims it. */
import type { Queries } from "../db/pool.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { limitOf } from "./limit.ts";
import { saveNextNetwork } from "./network-store.ts";
import { dayUsageOf } from "./usage-store.ts";

/** Whoever takes the start over asks the node for the same: the wish stands until the machine is handed out. */
export async function prepareNetwork(tx: Queries, session: SessionRow): Promise<SessionRow> {
  const usage = await dayUsageOf(tx, session.id, nextMachineIdOf(session));
  return await saveNextNetwork(tx, session.id, limitOf(session.egress_cap_bytes, usage));
}

/** The limit of the machine that the session has. */
export async function limitNow(db: Queries, session: SessionRow): Promise<number | null> {
  if (session.egress_cap_bytes === null) return null;
  return limitOf(session.egress_cap_bytes, await dayUsageOf(db, session.id, machineIdOf(session)));
}
