import { crashPoint } from "@vivarium/kit/crash-point";
import { findCaptured } from "../artifact-records/store.ts";
import { oneLine } from "../http/render-error.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { machineIdOf, nextMachineIdOf, previousMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { giveBackVolume } from "../volumes/attach.ts";
import type { MoveDeps } from "./deps.ts";
import { moveSession } from "./save-move.ts";
import { markReleased } from "./store.ts";

const NEVER = new AbortController().signal;

/**
 * Removes from the node what an ended or failed session has: its machine, its snapshot, and all that an interrupted
 * operation may have made. A failure is only logged: the row stays unreleased, and the sweep tries again. With
 * `isNodeAwaited`, the deletion of machines is retried for up to 5 s while the node is away. A machine from which files are
 * being captured stays until that is over, for a minute at most.
 */
export async function releaseSession(
  { db, nodes, log }: Pick<MoveDeps, "db" | "nodes" | "log">,
  session: SessionRow,
  { isNodeAwaited = false } = {},
): Promise<void> {
  const deleteMachine = (id: string) => nodes.deleteMachine(id);
  const deleteOrRetry = (id: string) => untilAnswered(NEVER, () => deleteMachine(id));
  try {
    if ((await findCaptured(db, [session.id])).size > 0) {
      // The sweep, or the end of the capture, removes the machine. Until then its guest runs on.
      if (session.ca_certificate !== null) await nodes.deleteConnections(session.id);
      return;
    }
    await Promise.all(machinesOf(session).map(isNodeAwaited ? deleteOrRetry : deleteMachine));
    crashPoint("release.machines");
    await giveBackVolume(db, session);
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

/** Marks a session as failed and removes what the node has of it. */
export async function failSession(
  deps: Pick<MoveDeps, "db" | "nodes" | "signals" | "auditKey" | "log">,
  session: SessionRow,
  event: "provision_failed" | "machine_lost",
  reason: string,
): Promise<void> {
  const statusReason = oneLine(reason, 200);
  const row = await moveSession(deps, session, event, { statusReason });
  deps.signals.moved(session.id);
  if (!row) return;
  deps.log.warn({ session_id: session.id, reason: statusReason }, "session failed");
  await releaseSession(deps, row);
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
