/**
 * Takes a session back to a checkpoint, in place (part 2, 7; security.md C8 "Restore in place"). The old machine is
 * given up once the new one is loaded and has been reseeded, and the new one goes on once the old one is gone: there is
 * always one to go on with, and never two that run.
 */

import type { CreateTiming } from "@vivarium/contract/api";
import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import { keyCeiling } from "../access/orgs.ts";
import { type Principal, type Scope, scopeOf } from "../access/principal.ts";
import { resolveCheckpoint } from "../checkpoints/get.ts";
import type { CheckpointRow } from "../checkpoints/store.ts";
import type { Database } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { noteKeepAlive } from "../deadlines/keep-alive.ts";
import { nextNetwork } from "../egress/prepare.ts";
import { collectLast, type NetworkReports } from "../egress/reports.ts";
import { ApiError } from "../errors/api-error.ts";
import { tellingRefusal } from "../events/refusals.ts";
import { apiErrorOfOperation, guestUnfit } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { Meter } from "../metrics/meter.ts";
import { aftermathOf, endedMeanwhile } from "../operations/aftermath.ts";
import type { Operation, Operations } from "../operations/operations.ts";
import { isRefusal, untilAnswered } from "../operations/until-answered.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getReadable } from "../sessions/get.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { decide, machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import { type SessionRow, saveMove, saveTimings } from "../sessions/store.ts";
import { takeSlots } from "../starts/admit.ts";
import { startSpec } from "../starts/provision.ts";
import { savable } from "./savable.ts";

const CLOSED_IN = ["failed", "lifetime_expired", "node_lost"] as const;

export interface RestoreDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  operations: Operations;
  networkReports: NetworkReports;
  log: Log;
  meter: Meter;
}

export async function restoreSession(
  deps: RestoreDeps,
  principal: Principal,
  { sessionId, idOrName }: { sessionId: string; idOrName: string },
): Promise<SessionRow> {
  const startedAt = performance.now();
  return await whenFree(deps, sessionId, async () => {
    const found = await findBoth(deps, scopeOf(principal), sessionId, idOrName);
    const session = await savable(deps, found.session);
    if (session === BUSY) return BUSY;
    checkLineage(session, found.checkpoint);
    // Its processes run again, whatever ran before.
    await noteKeepAlive(deps.db, session);
    const restore = () => tryRestore(deps, session, { checkpoint: found.checkpoint, startedAt });
    if (session.state !== "paused") return await restore();
    const { org_id: orgId, project_id: projectId } = session;
    const wanted = { type: "session.wake_refused", orgId, projectId, sessionId, op: "restore" } as const;
    return await tellingRefusal(deps.db, wanted, restore);
  });
}

async function tryRestore(
  deps: RestoreDeps,
  session: SessionRow,
  to: { checkpoint: CheckpointRow; startedAt: number },
): Promise<SessionRow | typeof BUSY> {
  const claimed = await claimRestore(deps, session, to.checkpoint);
  if (!claimed) return BUSY;
  crashPoint("restore.intent");
  return await deps.operations.run(claimed, (op) => exchangeMachine(deps, op, to));
}

/** A session that nothing can take back any more says so, whatever checkpoint is named. */
async function findBoth(deps: RestoreDeps, scope: Scope, sessionId: string, idOrName: string) {
  const session = await getReadable(deps.db, scope, sessionId, CLOSED_IN);
  const checkpoint = await resolveCheckpoint(deps.db, { scope, sessionId: session.id, idOrName });
  return { session, checkpoint };
}

function checkLineage(session: SessionRow, checkpoint: CheckpointRow): void {
  if (checkpoint.session_id === session.id || checkpoint.id === session.origin_checkpoint_id) return;
  throw new ApiError(
    "conflict",
    "checkpoint_id: this is a checkpoint of another session; start a session from it instead",
  );
}

/** A paused session becomes live by this, and takes a slot like one that wakes. */
async function claimRestore(
  { db, operations }: RestoreDeps,
  session: SessionRow,
  checkpoint: CheckpointRow,
): Promise<SessionRow | undefined> {
  const input = { checkpoint_id: checkpoint.id };
  if (session.state === "live")
    return await operations.claim(session, "restore", input, db, await nextNetwork(db, session));
  return await db.transaction().execute(async (tx) => {
    const keyId = session.key_id ?? "";
    const concurrentSessions = await keyCeiling(tx, keyId);
    await takeSlots(tx, { orgId: session.org_id, keyId, concurrentSessions });
    return await operations.claim(session, "restore", input, tx, await nextNetwork(tx, session));
  });
}

async function exchangeMachine(
  deps: RestoreDeps,
  op: Operation,
  { checkpoint, startedAt }: { checkpoint: CheckpointRow; startedAt: number },
): Promise<SessionRow | typeof BUSY> {
  const spec = { ...startSpec(op.session), template: checkpoint.baseline ?? checkpoint.template };
  const loaded = await load(deps, op, { ...spec, snapshot_id: checkpoint.id });
  if (loaded === BUSY) return BUSY;
  const timingsNow = () => ({
    place: 0,
    ...loaded.timings,
    total: Math.round(performance.now() - startedAt),
  });
  const session = await swap(deps, op, timingsNow(), {
    guestIp: loaded.guest_ip,
    checkpointId: checkpoint.id,
  });
  if (session === BUSY) return BUSY;
  crashPoint("restore.swap");
  await goOn(deps, op, { session, spec: { ...spec, snapshot_id: checkpoint.id } });
  deps.signals.moved(session.id);
  const timings = timingsNow();
  deps.operations.behind(saveTimings(deps.db, session, timings));
  deps.meter.took("restore", timings);
  deps.log.info({ session_id: session.id, checkpoint_id: checkpoint.id, timings }, "session restored");
  return { ...session, timings };
}

/** Before the switch: whatever fails leaves the session as it was. */
async function load(deps: RestoreDeps, op: Operation, spec: StartSpec): Promise<MachineStatus | typeof BUSY> {
  try {
    const machine = await untilAnswered(op.signal, (signal) =>
      deps.nodes.startMachine(nextMachineIdOf(op.session), { ...spec, hold: true }, signal),
    );
    if (machine.state === "held") return machine;
    throw new NodeError("refused", `the machine is ${machine.state}`, { code: "agent_unavailable" });
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (op.signal.aborted) return await calledOff(deps, op, error);
    await giveUp(deps, op, error);
    if (error.code === "snapshot_not_found") throw checkpointGone(error);
    throw error.code === "guest_unfit" ? checkpointUnfit(error) : apiErrorOfOperation(error);
  }
}

/** What may have reached the node and is not answered is taken back by whoever takes the operation over. */
async function giveUp(deps: RestoreDeps, op: Operation, error: NodeError): Promise<void> {
  if (error.failure === "unreachable") await deps.operations.clear(op);
  else if (isRefusal(error)) {
    await takeBackRestore(deps, op).catch((err: unknown) =>
      deps.log.warn({ err, session_id: op.session.id }, "a restore is taken back once the node answers"),
    );
  }
}

/** Also for an operation whose process died before the switch. Nothing of the new machine may stay: its name is used again. */
export async function takeBackRestore(deps: RestoreDeps, op: Operation): Promise<void> {
  await deps.nodes.deleteMachine(nextMachineIdOf(op.session));
  await deps.operations.clear(op);
}

/** From here on the session is the new machine; whoever finds the operation now settles the machines by the row. */
async function swap(
  deps: RestoreDeps,
  op: Operation,
  timings: CreateTiming,
  { guestIp, checkpointId }: { guestIp?: string; checkpointId: string },
): Promise<SessionRow | typeof BUSY> {
  const move = decide(op.session, "restore");
  if (!move) throw new Error(`a session that is ${op.session.state} cannot be restored`);
  const extra = { operation: { id: op.id, thenSettle: true }, timings, guestIp, restoredFrom: checkpointId };
  const saved = await untilStored(() => saveMove(deps.db, op.session.id, move, extra));
  return saved ?? (await calledOff(deps, op));
}

async function goOn(
  deps: RestoreDeps,
  op: Operation,
  { session, spec }: { session: SessionRow; spec: StartSpec },
): Promise<void> {
  const machineId = machineIdOf(session);
  try {
    await collectLast(deps);
    await untilAnswered(op.signal, () => deps.nodes.deleteMachine(machineIdOf(op.session)));
    crashPoint("restore.release");
    const goOn = () => untilAnswered(op.signal, (signal) => deps.nodes.continueMachine(machineId, signal));
    const isSlow = (error: unknown) => error instanceof NodeError && error.code === "agent_unavailable";
    // It has shown that it can go on: an agent that is not heard in time is asked once more.
    const once = goOn().catch((error: unknown) => (isSlow(error) ? goOn() : Promise.reject(error)));
    await once.catch(async (error: unknown) => {
      if (!(error instanceof NodeError) || !isRefusal(error)) throw error;
      // The old machine is gone: the checkpoint is what there is to go on with.
      await deps.nodes.deleteMachine(machineId);
      await untilAnswered(op.signal, (signal) => deps.nodes.startMachine(machineId, spec, signal));
    });
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (op.signal.aborted) throw (await isEnded(deps, op)) ? endedMeanwhile() : apiErrorOfOperation(error);
    // A refusal is final: the reconcile finds the session without a machine, and says so in its record.
    if (isRefusal(error)) await deps.operations.clear(op);
    throw apiErrorOfOperation(error);
  }
  await deps.operations.clear(op);
}

/** The row is not ours to commit any more: whatever it says by now is the outcome. */
async function calledOff(deps: RestoreDeps, op: Operation, cause?: NodeError): Promise<typeof BUSY> {
  const now = await aftermathOf(deps, op);
  if (now.is === "ours") throw cause ? apiErrorOfOperation(cause) : new Error("a restore lost its own row");
  if (now.is === "another") return BUSY;
  await deps.nodes.deleteMachine(nextMachineIdOf(op.session)).catch(() => undefined);
  throw endedMeanwhile();
}

async function isEnded(deps: RestoreDeps, op: Operation): Promise<boolean> {
  return (await aftermathOf(deps, op)).is === "ended";
}

function checkpointGone(cause: NodeError): ApiError {
  return new ApiError("not_found", "checkpoint_id: the checkpoint was deleted, or its node has lost it", {
    cause,
  });
}

function checkpointUnfit(cause: NodeError): ApiError {
  return guestUnfit(
    cause,
    "checkpoint_id: the guest in this checkpoint does not come back, and the session is as it was",
    "choose another checkpoint",
  );
}
