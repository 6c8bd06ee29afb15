/** Carries out the pause of a live session: snapshot, commit, deletion of the machine (docs/design/operations.md). */

import type { CaptureTimings, SnapshotStatus } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { randomId } from "@vivarium/kit/id";
import { addArchive } from "../archive-records/add.ts";
import type { Queries } from "../db/pool.ts";
import { collectFinalCounters } from "../egress/reports.ts";
import { isRefusal } from "../fleet/node-error.ts";
import { carryOut, operate } from "../operations/frame.ts";
import { type Operation, snapshotIdOf } from "../operations/operations.ts";
import { BUSY } from "../operations/when-free.ts";
import { openStateKey } from "../secrets/state-key.ts";
import type { OperationInput } from "../sessions/operation-kinds.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { noteVolumeSaved } from "../volumes/attach.ts";
import {
  canArchive,
  explainNotDurable,
  NO_COLD_TIER,
  notDurable,
  refusePause,
  untilArchived,
} from "./archive-first.ts";
import type { MoveDeps } from "./deps.ts";
import { releaseSession } from "./release-session.ts";
import { commitMove } from "./save-move.ts";
import { requireStateKey } from "./start-machine.ts";

/** Time until a deadline tries a refused pause again: each attempt may stop the guest for a moment. */
const RETRY_MS = 10_000;

export type PauseTimings = CaptureTimings & { total: number };
export interface Paused {
  session: SessionRow;
  timings: PauseTimings;
}

/** BUSY if the session moved, an operation is in flight, or `isStillDue` is false in the transaction of the claim. */
export async function claimAndPause(
  deps: MoveDeps,
  session: SessionRow,
  why: Pick<OperationInput, "event" | "wake_at" | "by">,
  isStillDue?: (tx: Queries) => Promise<boolean>,
): Promise<Paused | typeof BUSY> {
  if (deps.requireDurablePause && !canArchive(deps)) {
    await refusePause(deps, session, why.event ?? "pause", NO_COLD_TIER);
    throw explainNotDurable(NO_COLD_TIER);
  }
  await requireStateKey(deps, session);
  const input = { snapshot_id: `pau_${randomId()}`, ...why };
  const claim = (db: Queries) => deps.operations.claim(session, "pause", input, db);
  const claimed = isStillDue
    ? deps.db.transaction().execute(async (tx) => ((await isStillDue(tx)) ? await claim(tx) : undefined))
    : claim(deps.db);
  return await operate(deps, claimed, (op) => carryOutPause(deps, op));
}

/** Carries out a claimed pause. Idempotent: also run by the process that takes the operation over. */
export async function carryOutPause(deps: MoveDeps, op: Operation): Promise<Paused | typeof BUSY> {
  if (wasUsedSinceDecision(deps, op)) {
    await deps.operations.clear(op);
    return BUSY;
  }
  const spec = { machine_id: machineIdOf(op.session), after: "hold" } as const;
  let whyNotDurable: string | undefined;
  return await carryOut(deps, op, {
    make: async (signal) => {
      const stateKey = await openStateKey(deps.keyring, op.session);
      const snapshot = await deps.nodes.putSnapshot(snapshotIdOf(op), spec, signal, stateKey);
      if (deps.requireDurablePause) whyNotDurable = await untilArchived(deps, op, snapshot, signal);
      if (whyNotDurable !== undefined) throw notDurable(whyNotDurable);
      return snapshot;
    },
    commit: (snapshot) => commit(deps, op, snapshot),
    finish: (session, snapshot, elapsedMs) => {
      deps.operations.runInBackground(deleteStoppedMachine(deps, op.session));
      const timings = { ...(snapshot.timings ?? NO_TIMINGS), total: elapsedMs() };
      const facts = { event: eventOf(op), bytes: snapshot.bytes };
      return { outcome: { session, timings }, timings, facts };
    },
    remove: () => deps.nodes.deleteSnapshot(snapshotIdOf(op)),
    rollBack: () => rollBack(deps, op, whyNotDurable),
    explain: (error) => (whyNotDurable === undefined ? undefined : explainNotDurable(whyNotDurable, error)),
    whenUnsure: "leave",
  });
}

/** Race: a guest operation may start after a pause for idleness or detach was decided. The pause is skipped then. */
function wasUsedSinceDecision({ activity }: MoveDeps, op: Operation): boolean {
  if (op.isTakenOver) return false;
  if (eventOf(op) === "last_pty_detached_pause") return activity.isInUse(op.session);
  return eventOf(op) === "idle_timeout" && activity.hasUnflushed(op.session);
}

async function commit(deps: MoveDeps, op: Operation, snapshot: SnapshotStatus) {
  return await commitMove(
    deps,
    op,
    eventOf(op),
    {
      snapshot: { id: snapshot.snapshot_id, bytes: snapshot.bytes },
      wakeAt: op.input.wake_at === undefined ? null : new Date(op.input.wake_at),
      ...(eventOf(op) === "max_lifetime" && { statusReason: lifetimeReason(op.session) }),
    },
    async (tx) => void (await addArchive(deps, tx, { kind: "pause", session: op.session, snapshot })),
  );
}

/** After a refusal by the node: the machine continues and the session stays live, or ends if its lifetime is over. */
async function rollBack(deps: MoveDeps, op: Operation, whyNotDurable?: string): Promise<void> {
  await deps.nodes.continueMachine(machineIdOf(op.session)).catch((error: unknown) => {
    if (!isRefusal(error)) throw error;
  });
  await deps.nodes.deleteSnapshot(snapshotIdOf(op)).catch(() => undefined);
  if (whyNotDurable !== undefined) await refusePause(deps, op.session, eventOf(op), whyNotDurable);
  // A pause that could not be made durable is tried again, and the session stays as it is.
  if (eventOf(op) === "max_lifetime" && whyNotDurable === undefined) await destroyInstead(deps, op);
  else await deps.operations.clear(op, { lookAfterMs: eventOf(op) === "pause" ? 0 : RETRY_MS });
}

/** A session that cannot be paused at the end of its lifetime is destroyed instead. */
async function destroyInstead(deps: MoveDeps, op: Operation): Promise<void> {
  const row = await commitMove(deps, op, "max_lifetime_pause_failed");
  if (!row) return;
  deps.log.warn({ session_id: row.id }, "session destroyed: its lifetime is over and it could not be paused");
  await releaseSession(deps, row);
}

/** Deletes the stopped machine and the previous snapshot. The sweep deletes what could not be deleted here. */
async function deleteStoppedMachine(deps: MoveDeps, before: SessionRow): Promise<void> {
  await collectFinalCounters(deps);
  await deps.nodes.deleteMachine(machineIdOf(before));
  await noteVolumeSaved(deps.db, before);
  if (before.snapshot_id !== null) await deps.nodes.deleteSnapshot(before.snapshot_id);
  crashPoint("pause.release");
}

export function lifetimeReason(session: SessionRow): string {
  return `the session has reached its max_lifetime_ms of ${session.max_lifetime_ms}`;
}

const eventOf = (op: Operation) => op.input.event ?? "pause";

const NO_TIMINGS: CaptureTimings = { freeze: 0, state: 0, memory: 0, disk: 0, publish: 0, stopped: 0 };
