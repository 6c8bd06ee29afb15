/** The desired network of a session's next machine, and changes to it. */
import type { Queries } from "../db/pool.ts";
import type { ExposedPort } from "../db/tables.ts";
import type { NextNetwork } from "../sessions/operation-kinds.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { nextNetworkColumns } from "./columns.ts";
import { limitOf } from "./limit.ts";
import { saveDesiredNetwork } from "./network-store.ts";
import { dayUsageOf } from "./usage-store.ts";

/**
 * Written by the claim of the operation. A process that takes the operation over asks the node for the same network.
 */
export async function nextNetwork(db: Queries, session: SessionRow): Promise<NextNetwork> {
  const usage = await dayUsageOf(db, session.id, nextMachineIdOf(session));
  return nextNetworkColumns(limitOf(session.egress_cap_bytes, usage));
}

/** The limit of the session's current machine. */
export async function currentLimit(db: Queries, session: SessionRow): Promise<number | null> {
  if (session.egress_cap_bytes === null) return null;
  return limitOf(session.egress_cap_bytes, await dayUsageOf(db, session.id, machineIdOf(session)));
}

/** Stores the exposed ports as a new desired network. The caller has locked the session's row. */
export async function saveExposedPorts(
  tx: Queries,
  session: SessionRow,
  exposed: ExposedPort[],
): Promise<SessionRow> {
  const limitBytes = session.state === "live" ? await currentLimit(tx, session) : undefined;
  const desired = await saveDesiredNetwork(tx, session, { exposed, limitBytes });
  if (!desired) throw new Error("a session's row moved while it was locked");
  return desired;
}
