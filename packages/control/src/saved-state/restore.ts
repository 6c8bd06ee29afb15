/**
 * Restores a session to a checkpoint, in place. First the new machine is loaded and reseeded, but stays stopped. Then
 * the row moves to it, the old machine is removed, and the new one is continued. So there is always a machine to
 * continue with, and never two that run.
 */

import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { resolveCheckpoint } from "../checkpoints/get.ts";
import type { CheckpointRow } from "../checkpoints/store.ts";
import { requireOpenable } from "../connections/push.ts";
import { setMayKeepAlive } from "../deadlines/keep-alive.ts";
import { nextNetwork } from "../egress/prepare.ts";
import { collectFinalCounters } from "../egress/reports.ts";
import { ApiError } from "../errors/api-error.ts";
import { emitIfRefused } from "../events/refusals.ts";
import { apiErrorOfOperation, guestUnfit } from "../fleet/api-error-of-node.ts";
import { isRefusal, NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { commitMove, saveTimings } from "../moves/save-move.ts";
import { requireStateKey, startMachineOf } from "../moves/start-machine.ts";
import { requireState, startSpec } from "../moves/start-spec.ts";
import { claimWithSlot } from "../moves/wake.ts";
import { carryOut, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { endedDuringRequest, ownershipOf } from "../operations/ownership.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getReadable } from "../sessions/get.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { requireSnapshotable } from "./snapshot-steps.ts";

const CLOSED_IN = ["failed", "lifetime_expired", "node_lost"] as const;

export async function restoreSession(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, idOrName, by }: { sessionId: string; idOrName: string; by: Caller },
): Promise<SessionRow> {
  const startedAt = performance.now();
  return await whenFree(deps, sessionId, async () => {
    // Errors of the session come before errors of the checkpoint.
    const found = await getReadable(deps.db, scope, sessionId, CLOSED_IN);
    const checkpoint = await resolveCheckpoint(deps.db, { scope, sessionId, idOrName });
    const session = await requireSnapshotable(deps, found);
    if (session === BUSY) return BUSY;
    checkLineage(session, checkpoint);
    await requireStateKey(deps, session);
    await requireOpenable(deps, session);
    // The checkpoint may contain processes with `keep_alive`.
    await setMayKeepAlive(deps.db, session);
    const restore = () =>
      operate(deps, claimRestore(deps, session, { checkpoint, by }), (op) =>
        replaceMachine(deps, op, { checkpoint, startedAt }),
      );
    if (session.state !== "paused") return await restore();
    const { org_id: orgId, project_id: projectId } = session;
    const wanted = { type: "session.wake_refused", orgId, projectId, sessionId, op: "restore" } as const;
    return await emitIfRefused(deps.db, wanted, restore);
  });
}

function checkLineage(session: SessionRow, checkpoint: CheckpointRow): void {
  if (checkpoint.session_id === session.id || checkpoint.id === session.origin_checkpoint_id) return;
  throw new ApiError(
    "conflict",
    "checkpoint_id: this is a checkpoint of another session; start a session from it instead",
  );
}

/** A restore makes a paused session live, so that case checks the ceilings. */
async function claimRestore(
  deps: MoveDeps,
  session: SessionRow,
  { checkpoint, by }: { checkpoint: CheckpointRow; by: Caller },
): Promise<SessionRow | undefined> {
  const input = { checkpoint_id: checkpoint.id, by };
  if (session.state === "paused") return await claimWithSlot(deps, session, "restore", input);
  const { db, operations, startGate } = deps;
  startGate.requireOpen();
  return await operations.claim(session, "restore", input, db, await nextNetwork(db, session));
}

async function replaceMachine(
  deps: MoveDeps,
  op: Operation,
  { checkpoint, startedAt }: { checkpoint: CheckpointRow; startedAt: number },
): Promise<SessionRow | typeof BUSY> {
  const spec = {
    ...startSpec(op.session),
    template: checkpoint.baseline ?? checkpoint.template,
    snapshot_id: checkpoint.id,
  };
  const machineId = nextMachineIdOf(op.session);
  const timingsOf = (loaded: MachineStatus) => ({
    place: 0,
    ...loaded.timings,
    total: Math.round(performance.now() - startedAt),
  });
  return await carryOut(deps, op, {
    make: async (signal) => {
      const wanted = { machineId, spec: { ...spec, hold: true }, signal };
      return requireState("held", await startMachineOf(deps, op.session, wanted));
    },
    // Moves the row to the new machine. From here on a process that takes over settles the machines by the row.
    commit: (loaded) =>
      commitMove(deps, op, "restore", {
        thenSettle: true,
        timings: timingsOf(loaded),
        machine: loaded,
        restoredFrom: checkpoint.id,
      }),
    finish: async (session, loaded) => {
      await switchMachines(deps, op, { session, spec });
      const timings = timingsOf(loaded);
      deps.operations.runInBackground(saveTimings(deps.db, session, timings));
      return { outcome: { ...session, timings }, timings, facts: { checkpoint_id: checkpoint.id } };
    },
    remove: () => deps.nodes.deleteMachine(machineId),
    rollBack: () =>
      rollBackRestore(deps, op).catch((err: unknown) =>
        deps.log.warn(
          { err, session_id: op.session.id },
          "a restore will be rolled back once the node answers",
        ),
      ),
    explain,
    whenUnsure: "leave",
  });
}

function explain(error: NodeError): ApiError | undefined {
  if (error.code === "snapshot_not_found") {
    const text = "checkpoint_id: the checkpoint was deleted, or its node has lost it";
    return new ApiError("not_found", text, { cause: error });
  }
  if (error.code !== "guest_unfit") return undefined;
  return guestUnfit(
    error,
    "checkpoint_id: the guest in this checkpoint does not come back, and the session is as it was",
    "choose another checkpoint",
  );
}

/** Rolls back a restore before its commit, also at a take-over. The machine id is used again, so nothing may remain. */
export async function rollBackRestore(deps: MoveDeps, op: Operation): Promise<void> {
  await deps.nodes.deleteMachine(nextMachineIdOf(op.session));
  await deps.operations.clear(op);
}

/** Removes the old machine and continues the new one. */
async function switchMachines(
  deps: MoveDeps,
  op: Operation,
  { session, spec }: { session: SessionRow; spec: StartSpec },
): Promise<void> {
  const machineId = machineIdOf(session);
  try {
    await collectFinalCounters(deps);
    await untilAnswered(op.signal, () => deps.nodes.deleteMachine(machineIdOf(op.session)));
    crashPoint("restore.release");
    const continueNew = () =>
      untilAnswered(op.signal, (signal) => deps.nodes.continueMachine(machineId, signal));
    const isSlow = (error: unknown) => error instanceof NodeError && error.code === "agent_unavailable";
    // The guest has answered the handshake of the load, so an agent that is late now is asked once more.
    const continued = continueNew().catch((error: unknown) =>
      isSlow(error) ? continueNew() : Promise.reject(error),
    );
    await continued.catch(async (error: unknown) => {
      if (!isRefusal(error)) throw error;
      // The old machine is gone, so the checkpoint is loaded again.
      await deps.nodes.deleteMachine(machineId);
      await untilAnswered(op.signal, (signal) =>
        startMachineOf(deps, op.session, { machineId, spec, signal }),
      );
    });
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (op.signal.aborted && (await ownershipOf(deps.db, op)) === "ended") throw endedDuringRequest();
    // A refusal is final: the reconciler finds the session without a machine and marks it as failed.
    if (isRefusal(error) && !op.signal.aborted) await deps.operations.clear(op);
    throw apiErrorOfOperation(error);
  }
  await deps.operations.clear(op);
}
