/** Wakes a paused session: starts a machine from its saved state (docs/design/operations.md). */

import type { CreateTiming, SessionEvent } from "@vivarium/contract/api";
import type { StartSpec } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import { findKeyCeiling } from "../access/store.ts";
import { requireOpenable } from "../connections/push.ts";
import { nextNetwork } from "../egress/prepare.ts";
import { emitIfRefused } from "../events/refusals.ts";
import { guestUnfit } from "../fleet/api-error-of-node.ts";
import { carryOut, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { BUSY } from "../operations/when-free.ts";
import type { OperationInput } from "../sessions/operation-kinds.ts";
import { takeSlots } from "../sessions/slots.ts";
import { machineIdOf, nextMachineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { expireIfLifetimeOver } from "./expire.ts";
import { commitMove } from "./save-move.ts";
import { requireStateKey, startMachineOf } from "./start-machine.ts";
import { requireState, startSpec } from "./start-spec.ts";

/** Time between two attempts of a scheduled wake that is refused. */
export const WAKE_RETRY_MS = 5_000;

type WakeEvent = Extract<SessionEvent, "resume" | "operation_wake" | "tunnel_attach" | "wake_at_reached">;

/** Wakes the session once for all callers that need it at the same time. BUSY: the caller must read the row again. */
export async function wakeSession(
  deps: MoveDeps,
  session: SessionRow,
  event: WakeEvent,
  by?: Caller,
): Promise<SessionRow | typeof BUSY> {
  return await deps.operations.singleFlight(`wake ${session.id}`, async () => {
    if (await expireIfLifetimeOver(deps, session)) return BUSY;
    await requireStateKey(deps, session);
    await requireOpenable(deps, session);
    const { id: sessionId, org_id: orgId, project_id: projectId } = session;
    const wanted = { type: "session.wake_refused", orgId, projectId, sessionId, op: event } as const;
    return await emitIfRefused(deps.db, wanted, () =>
      operate(deps, claimWithSlot(deps, session, "wake", { event, by }), (op) => carryOutWake(deps, op)),
    );
  });
}

/** Claims an operation that makes a paused session live: checks the ceilings, chooses the next machine's network. */
export async function claimWithSlot(
  deps: Pick<MoveDeps, "db" | "operations" | "startGate" | "sessionCeiling">,
  session: SessionRow,
  kind: "wake" | "restore",
  input: OperationInput,
): Promise<SessionRow | undefined> {
  const { db, operations, startGate } = deps;
  startGate.requireOpen();
  return await db.transaction().execute(async (tx) => {
    const keyId = session.key_id ?? "";
    const concurrentSessions = await findKeyCeiling(tx, keyId);
    await takeSlots(deps, tx, { orgId: session.org_id, keyId, concurrentSessions });
    return await operations.claim(session, kind, input, tx, await nextNetwork(tx, session));
  });
}

/** Carries out a claimed wake. Idempotent, also in another process: a repeated start returns the same machine. */
export async function carryOutWake(deps: MoveDeps, op: Operation): Promise<SessionRow | typeof BUSY> {
  const machineId = nextMachineIdOf(op.session);
  let timings: CreateTiming;
  return await carryOut(deps, op, {
    make: async (signal) => {
      // The machine of before the pause has the volume until it is deleted.
      if (op.session.volume_id !== null) await deps.nodes.deleteMachine(machineIdOf(op.session));
      const wanted = { machineId, spec: wakeSpec(op.session), signal };
      return requireState("running", await startMachineOf(deps, op.session, wanted));
    },
    commit: async (machine, elapsedMs) => {
      crashPoint("wake.started");
      timings = { place: 0, ...machine.timings, total: elapsedMs() };
      return await commitMove(deps, op, op.input.event ?? "resume", {
        timings,
        machine,
      });
    },
    finish: (session) => ({ outcome: session, timings, facts: { event: op.input.event } }),
    // The next attempt starts a machine with the same id, so nothing of this one may remain.
    remove: () => deps.nodes.deleteMachine(machineId),
    lookAfterMs: op.input.event === "wake_at_reached" ? WAKE_RETRY_MS : 0,
    // Not retryable: a broken guest stays broken. One more resume is suggested, because a busy host can look the same.
    explain: (error) =>
      error.code === "guest_unfit"
        ? guestUnfit(
            error,
            "the session's guest does not come back, and the session stays paused",
            "resume it once more, and if it stays so restore it to a checkpoint or destroy it",
          )
        : undefined,
    whenUnsure: "leave",
  });
}

function wakeSpec(session: SessionRow): StartSpec {
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { ...startSpec(session), snapshot_id: session.snapshot_id, resume: true };
}
