/** Gives a paused session a machine that goes on from its saved state (security.md C8 "Resume"). */

import type { CreateTiming, SessionEvent } from "@vivarium/contract/api";
import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import { keyCeiling } from "../access/orgs.ts";
import type { Database } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { nextNetwork } from "../egress/prepare.ts";
import type { ApiError } from "../errors/api-error.ts";
import { tellingRefusal } from "../events/refusals.ts";
import { apiErrorOfOperation, guestUnfit } from "../fleet/api-error-of-node.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { Meter } from "../metrics/meter.ts";
import { aftermathOf, endedMeanwhile } from "../operations/aftermath.ts";
import type { Operation, Operations } from "../operations/operations.ts";
import { isRefusal, untilAnswered } from "../operations/until-answered.ts";
import { BUSY } from "../operations/when-free.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { decide, nextMachineIdOf } from "../sessions/state.ts";
import { type SessionRow, saveMove } from "../sessions/store.ts";
import { takeSlots } from "../starts/admit.ts";
import { startSpec } from "../starts/provision.ts";
import { expireIfOver } from "./expire.ts";

/** Between a wake by schedule that was refused and the next: whoever tries says so next, and nobody looks before that. */
export const WAKE_RETRY_MS = 5_000;

export interface WakeDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  operations: Operations;
  log: Log;
  meter: Meter;
}

type WakeEvent = Extract<SessionEvent, "resume" | "operation_wake" | "tunnel_attach" | "wake_at_reached">;

/** Everybody who needs the session awake shares one wake. BUSY: decide anew on the row. */
export async function wakeSession(
  deps: WakeDeps,
  session: SessionRow,
  event: WakeEvent,
): Promise<SessionRow | typeof BUSY> {
  return await deps.operations.share(`wake ${session.id}`, async () => {
    if (await expireIfOver(deps, session)) return BUSY;
    const { id: sessionId, org_id: orgId, project_id: projectId } = session;
    const wanted = { type: "session.wake_refused", orgId, projectId, sessionId, op: event } as const;
    return await tellingRefusal(deps.db, wanted, () => tryWake(deps, session, event));
  });
}

async function tryWake(
  deps: WakeDeps,
  session: SessionRow,
  event: WakeEvent,
): Promise<SessionRow | typeof BUSY> {
  const claimed = await claimWake(deps, session, event);
  if (!claimed) return BUSY;
  crashPoint("wake.intent");
  return await deps.operations.run(claimed, (op) => wakeMachine(deps, op));
}

/** A wake takes a slot under the ceilings like a create. */
async function claimWake(
  deps: WakeDeps,
  session: SessionRow,
  event: WakeEvent,
): Promise<SessionRow | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    const keyId = session.key_id ?? "";
    const concurrentSessions = await keyCeiling(tx, keyId);
    await takeSlots(tx, { orgId: session.org_id, keyId, concurrentSessions });
    return await deps.operations.claim(session, "wake", { event }, tx, await nextNetwork(tx, session));
  });
}

/** The whole sequence; made again by whoever takes the operation over: the same start gives the same machine. */
export async function wakeMachine(deps: WakeDeps, op: Operation): Promise<SessionRow | typeof BUSY> {
  const startedAt = performance.now();
  const machine = await startAgain(deps, op);
  if (machine === BUSY) return BUSY;
  crashPoint("wake.started");
  const timings = { place: 0, ...machine.timings, total: Math.round(performance.now() - startedAt) };
  const session = await commit(deps, op, timings, machine.guest_ip);
  if (session === BUSY) return BUSY;
  crashPoint("wake.commit");
  deps.signals.moved(session.id);
  deps.meter.took("wake", timings);
  deps.log.info({ session_id: session.id, event: op.input.event, timings }, "session awake");
  return session;
}

async function startAgain(deps: WakeDeps, op: Operation): Promise<MachineStatus | typeof BUSY> {
  try {
    const machine = await untilAnswered(op.signal, (signal) =>
      deps.nodes.startMachine(nextMachineIdOf(op.session), wakeSpec(op.session), signal),
    );
    if (machine.state === "running") return machine;
    throw new NodeError("refused", `the machine is ${machine.state}`, { code: "agent_unavailable" });
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (op.signal.aborted) return (await calledOff(deps, op, error)) && BUSY;
    if (isRefusal(error)) await takeBack(deps, op);
    else if (error.failure === "unreachable" && !op.isTakenOver) await clear(deps, op);
    throw error.code === "guest_unfit" ? sessionUnfit(error) : apiErrorOfOperation(error);
  }
}

async function commit(
  deps: WakeDeps,
  op: Operation,
  timings: CreateTiming,
  guestIp: string | undefined,
): Promise<SessionRow | typeof BUSY> {
  const move = decide(op.session, op.input.event ?? "resume");
  if (!move) throw new Error(`a session that is ${op.session.state} cannot be woken by ${op.input.event}`);
  const saved = await untilStored(() =>
    saveMove(deps.db, op.session.id, move, { operation: { id: op.id }, timings, guestIp }),
  );
  return saved ?? (await calledOff(deps, op));
}

/** The row is not ours to commit any more: whatever it says by now is the outcome. */
async function calledOff(
  deps: WakeDeps,
  op: Operation,
  cause?: NodeError,
): Promise<SessionRow | typeof BUSY> {
  const now = await aftermathOf(deps, op);
  if (now.is === "ours") throw cause ? apiErrorOfOperation(cause) : new Error("a wake lost its own row");
  if (now.is === "another") return BUSY;
  await deps.nodes.deleteMachine(nextMachineIdOf(op.session)).catch(() => undefined);
  throw endedMeanwhile();
}

/** The node refuses: nothing of the machine may stay, since the next wake gives its name again. */
async function takeBack(deps: WakeDeps, op: Operation): Promise<void> {
  await deps.nodes.deleteMachine(nextMachineIdOf(op.session));
  await clear(deps, op);
}

async function clear({ operations, db }: WakeDeps, op: Operation): Promise<void> {
  await operations.clear(op, db, {
    lookAfterMs: op.input.event === "wake_at_reached" ? WAKE_RETRY_MS : 0,
  });
}

function wakeSpec(session: SessionRow): StartSpec {
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { ...startSpec(session), snapshot_id: session.snapshot_id, resume: true };
}

/** Waiting mends no guest, so nobody is told to; but a host that was too busy to hear it gets a second chance. */
function sessionUnfit(cause: NodeError): ApiError {
  return guestUnfit(
    cause,
    "the session's guest does not come back, and the session stays paused",
    "resume it once more, and if it stays so restore it to a checkpoint or destroy it",
  );
}
