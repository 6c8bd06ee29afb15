import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { machineIdOf, nextMachineIdOf, previousMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { markReleased } from "./store.ts";

const NEVER = new AbortController().signal;

/**
 * Removes from the node what an ended or failed session has: its machine, its saved state, and whatever an interrupted
 * operation may have made. A failure is only logged: the row stays unreleased, and the sweep tries again. With
 * `isNodeAwaited`, deleting machines is retried for a moment while the node is away.
 */
export async function releaseSession(
  { db, nodes, log }: { db: Database; nodes: NodeClient; log: Log },
  session: SessionRow,
  { isNodeAwaited = false } = {},
): Promise<void> {
  const deleteMachine = (id: string) => nodes.deleteMachine(id);
  const deleteForAnswer = (id: string) => untilAnswered(NEVER, () => deleteMachine(id));
  try {
    await Promise.all(machinesOf(session).map(isNodeAwaited ? deleteForAnswer : deleteMachine));
    crashPoint("release.machines");
    await Promise.all(snapshotsOf(session).map((id) => nodes.deleteSnapshot(id)));
    crashPoint("release.snapshots");
    await markReleased(db, session.id);
  } catch (err) {
    log.warn(
      { err, session_id: session.id },
      "a session could not be removed from its node yet; the sweep tries again",
    );
  }
}

/** An operation may have made the next machine. A `settle` may not have removed the previous one yet. */
function machinesOf(session: SessionRow): string[] {
  const own = machineIdOf(session);
  if (session.op === null) return [own];
  const previous = session.op === "settle" ? previousMachineIdOf(session) : undefined;
  return [previous, own, nextMachineIdOf(session)].filter((id) => id !== undefined);
}

function snapshotsOf({ snapshot_id: saved, op_input: input }: SessionRow): string[] {
  return [saved, input?.snapshot_id].filter((id) => id != null);
}
