/** Computes the desired network of a session's current and next machine, and saves its exposed ports. */
import type { NetworkSpec } from "@vivarium/contract/node";
import type { Queries } from "../db/pool.ts";
import type { ExposedPort } from "../db/tables.ts";
import type { NextNetwork } from "../sessions/operation-kinds.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { nextNetworkColumns } from "./columns.ts";
import { type BoundColumns, saveDesiredNetwork } from "./network-store.ts";
import { type DayUsage, dayUsageOf } from "./usage-store.ts";

/** The network that the node is asked to apply to a session's machine. */
export function networkSpec(session: SessionRow): NetworkSpec {
  return {
    generation: session.network_generation,
    egress: session.egress,
    exposed: (session.exposed ?? []).map(({ port }) => port),
    ...(session.egress_limit_bytes !== null && { egress_limit_bytes: session.egress_limit_bytes }),
    ...(session.bound_hosts !== null && { bound_hosts: session.bound_hosts }),
  };
}

/** Value of the machine's byte counter at which it is cut off, so that the daily cap is kept; null: no limit. */
export function limitOf(
  capBytes: number | null,
  { machineStart, others, isReached }: DayUsage,
): number | null {
  if (capBytes === null) return null;
  return machineStart + (isReached ? 0 : Math.max(0, capBytes - others));
}

/** Columns of the next machine's network. Written with the operation, so that a take-over uses the same network. */
export async function nextNetwork(db: Queries, session: SessionRow): Promise<NextNetwork> {
  const usage = await dayUsageOf(db, session.id, nextMachineIdOf(session));
  return nextNetworkColumns(limitOf(session.egress_cap_bytes, usage));
}

/** The limit of the session's current machine. */
export async function currentLimit(db: Queries, session: SessionRow): Promise<number | null> {
  if (session.egress_cap_bytes === null) return null;
  return limitOf(session.egress_cap_bytes, await dayUsageOf(db, session.id, machineIdOf(session)));
}

/** Stores a new desired network with a host that is bound. Undefined when the session has changed meanwhile. */
export async function saveBoundNetwork(
  tx: Queries,
  session: SessionRow,
  bound: BoundColumns,
): Promise<SessionRow | undefined> {
  return await saveDesiredNetwork(tx, session, { bound });
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
