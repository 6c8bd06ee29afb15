/** Forks a session: starts new sessions from a snapshot of its present state. All become live at once, or none. */
import { crashPoint } from "@vivarium/kit/crash-point";
import { randomId } from "@vivarium/kit/id";
import { type Caller, theSystem } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { hasActiveConnection } from "../connection-records/store.ts";
import type { Queries } from "../db/pool.ts";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { createAttempt, emitIfRefused } from "../events/refusals.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { carryOut, type Finished, operate } from "../operations/frame.ts";
import type { Operation } from "../operations/operations.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { openStateKey, stateKeyOfNew } from "../secrets/state-key.ts";
import { openVariables, saveSealedValues, sealVariables } from "../secrets/variables.ts";
import { getSession } from "../sessions/get.ts";
import { takeSlots } from "../sessions/slots.ts";
import { FIRST_STATE } from "../sessions/state.ts";
import { listCreatingFrom, type SessionRow } from "../sessions/store.ts";
import {
  discardSessions,
  insertProvisional,
  markAllLive,
  type StartedSession,
  startTogether,
  withProvisional,
} from "../starts/start-together.ts";
import { discardSnapshot, requireSnapshotable, snapshotSteps } from "./snapshot-steps.ts";

export interface Forked {
  parentId: string;
  children: SessionRow[];
  timings: { capture: number; stopped?: number; start: number; total: number };
}

export async function forkSession(
  deps: MoveDeps,
  principal: Principal,
  { sessionId, count, by }: { sessionId: string; count: number; by: Caller },
): Promise<Forked> {
  return await whenFree(deps, sessionId, async () => {
    const session = await requireSnapshotable(deps, await getSession(deps.db, scopeOf(principal), sessionId));
    if (session === BUSY) return BUSY;
    const wanted = createAttempt(principal, session.project_id, "fork");
    return await emitIfRefused(deps.db, wanted, async () => {
      const claimed = await deps.db
        .transaction()
        .execute((tx) => claimFork(deps, tx, principal, { session, count, by }));
      if (!claimed) return BUSY;
      const { parent, children } = claimed;
      return await operate(deps, Promise.resolve(parent), (op) => makeChildren(deps, op, children));
    });
  });
}

/** Writes the intent and the children's rows in one transaction with the check of the ceilings. */
async function claimFork(
  deps: MoveDeps,
  tx: Queries,
  principal: Principal,
  { session, count, by }: { session: SessionRow; count: number; by: Caller },
): Promise<{ parent: SessionRow; children: SessionRow[] } | undefined> {
  deps.startGate.requireOpen();
  if (await hasActiveConnection(tx, session.id)) throw hasConnections();
  if (session.volume_id !== null) throw hasVolume();
  await takeSlots(deps, tx, principal, count);
  const snapshotId = `frk_${randomId()}`;
  const parent = await deps.operations.claim(session, "fork", { snapshot_id: snapshotId, by }, tx);
  if (!parent) return undefined;
  // The claim's row: a session that has just ended has no variables any more.
  const variables = await openVariables({ ...deps, db: tx }, parent);
  const ofParent = await openStateKey(deps.keyring, parent);
  const isSealed = parent.may_hold_secrets || ofParent !== undefined;
  const stateKey = isSealed ? stateKeyOfNew(deps.keyring, ofParent) : undefined;
  const sealed = Array.from({ length: count }, () => {
    const owner = { org_id: parent.org_id, id: randomId() };
    return { owner, ...sealVariables(deps.keyring, owner, variables, { stateKey }) };
  });
  const settings = sealed.map(({ owner, columns }) => ({
    ...childOf(parent, principal, snapshotId),
    ...columns,
    ...owner,
  }));
  const children = await insertProvisional(tx, settings);
  await saveSealedValues(
    tx,
    sealed.flatMap(({ values }) => values),
  );
  return { parent, children };
}

function hasConnections(): ApiError {
  return new ApiError(
    "conflict",
    "the session has an active Connection, which a fork would share; revoke it, or wait until it has expired",
  );
}

function hasVolume(): ApiError {
  return new ApiError(
    "conflict",
    "the session has a volume, which only one session can have; start one from a checkpoint instead, without it",
  );
}

async function makeChildren(
  deps: MoveDeps,
  op: Operation,
  children: SessionRow[],
): Promise<Forked | typeof BUSY> {
  let capture = 0;
  let start = 0;
  return await withProvisional(deps, children, () =>
    carryOut(deps, op, {
      ...snapshotSteps(deps, op),
      commit: (_snapshot, elapsedMs) =>
        discardOnFailure(deps, children, async () => {
          crashPoint("fork.captured");
          capture = elapsedMs();
          const ready = await startTogether(deps, children, op.signal);
          crashPoint("fork.children");
          start = elapsedMs() - capture;
          return await untilStored(() => commit(deps, op, ready));
        }),
      finish: (live, snapshot, elapsedMs): Finished<Forked> => {
        // The children no longer need the snapshot. The operation ends once the snapshot is deleted.
        deps.operations.runInBackground(discardSnapshot(deps, op));
        for (const { id } of live) deps.signals.moved(id);
        const stopped = snapshot.timings?.stopped;
        const timings = { capture, ...(stopped !== undefined && { stopped }), start, total: elapsedMs() };
        const facts = { children: live.length, stages: live.map(({ timings: stage }) => stage) };
        return { outcome: { parentId: op.session.id, children: live, timings }, timings, facts };
      },
    }),
  );
}

/**
 * Discards the children before the roll-back deletes the snapshot. While the snapshot exists, a process that starts on
 * a restored backup knows that the children never became live (upkeep/first-look.ts).
 */
async function discardOnFailure<T>(
  deps: MoveDeps,
  children: SessionRow[],
  work: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    const live = await work();
    if (live === undefined) await discardSessions(deps, children);
    return live;
  } catch (error) {
    if (!isStoreUnavailable(error)) await discardSessions(deps, children);
    throw error;
  }
}

async function commit(
  deps: MoveDeps,
  op: Operation,
  ready: readonly StartedSession[],
): Promise<SessionRow[] | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    if (!(await deps.operations.isOurs(op, tx))) return undefined;
    const live = await markAllLive(deps, tx, ready);
    const { id, org_id: orgId, state } = op.session;
    const children = live.map((child) => child.id);
    await appendEvent(tx, eventOf(op.session, "session.forked", { state, children }));
    const by = op.input.by ?? theSystem(orgId);
    const entry = { action: "session.fork", target: id, sessionId: id, meta: { children } } as const;
    await appendEntry(deps, tx, { by, ...entry });
    return live;
  });
}

/**
 * Rolls back a fork whose process died: discards children that are not live, which no caller knows of, and deletes the
 * snapshot. Live children stay.
 */
export async function rollBackFork(deps: MoveDeps, op: Operation): Promise<void> {
  await discardSessions(deps, await listCreatingFrom(deps.db, op.input.snapshot_id ?? ""));
  await discardSnapshot(deps, op);
}

function childOf(parent: SessionRow, principal: Principal, snapshotId: string) {
  return {
    org_id: parent.org_id,
    project_id: parent.project_id,
    key_id: principal.keyId,
    origin: "api" as const,
    state: FIRST_STATE,
    parent_session_id: parent.id,
    origin_snapshot_id: snapshotId,
    size: parent.size,
    template: parent.template,
    template_version: parent.template_version,
    baseline: parent.baseline,
    labels: parent.labels && JSON.stringify(parent.labels),
    egress: JSON.stringify(parent.egress),
    egress_cap_bytes: parent.egress_cap_bytes,
    egress_limit_bytes: parent.egress_cap_bytes,
    no_sudo: parent.no_sudo,
    may_hold_secrets: parent.may_hold_secrets,
    on_pty_detach: parent.on_pty_detach,
    paused_ttl_ms: parent.paused_ttl_ms,
    idle_timeout_ms: parent.idle_timeout_ms,
    max_lifetime_ms: parent.max_lifetime_ms,
    destroy_on_completion: false,
    command_capture: parent.command_capture,
    wake_on_http: parent.wake_on_http,
    may_keep_alive: parent.may_keep_alive,
  };
}
