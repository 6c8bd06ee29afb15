/**
 * Starts provisional sessions. All of them become live at once, or none remains. Until then they are leased to the
 * process that makes them, so that the sweep destroys them if the process dies.
 */

import { type CreateTiming, LIMITS } from "@vivarium/contract/api";
import { repeatAfter } from "@vivarium/kit/clock";
import type { AuditDeps } from "../audit/append.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import {
  deleteProvisionalHistory,
  endProvisionalLeases,
  PROVISIONAL_LEASE_MS,
  provisionalLeaseColumns,
  renewProvisionalLeases,
} from "../leases/provisional.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { destroySession } from "../moves/destroy.ts";
import { moveSession, type NewMachine } from "../moves/save-move.ts";
import { startMachineOf } from "../moves/start-machine.ts";
import { requireState, startSpec } from "../moves/start-spec.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { isCreating, machineIdOf } from "../sessions/state.ts";
import { findSessionsById, type SessionRow } from "../sessions/store.ts";
import { insertSessions, type NewSession } from "./store.ts";

const RENEW_MS = PROVISIONAL_LEASE_MS / 3;

/** Inserts leased sessions. They have no names, so no name can be taken. */
export async function insertProvisional(
  tx: Queries,
  sessions: readonly Omit<NewSession, "name">[],
): Promise<SessionRow[]> {
  return await insertSessions(
    tx,
    sessions.map((session) => ({ ...session, ...provisionalLeaseColumns() })),
  );
}

/** Whether a session with a lease is provisional. The lease of a run, and of a live session, has another purpose. */
export function isProvisional(session: SessionRow): boolean {
  return session.origin === "api" && isCreating(session.state);
}

export interface StartedSession {
  session: SessionRow;
  timings: CreateTiming;
  machine: NewMachine;
}

/** Renews the leases while `work` runs. Discards the sessions if it fails. */
export async function withProvisional<T>(
  deps: MoveDeps,
  sessions: readonly SessionRow[],
  work: () => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const ids = sessions.map(({ id }) => id);
  const kept = repeatAfter(RENEW_MS, over.signal, () =>
    renewProvisionalLeases(deps.db, ids).catch(() => undefined),
  );
  try {
    return await work();
  } catch (error) {
    await discardSessions(deps, sessions);
    throw error;
  } finally {
    over.abort();
    await kept;
  }
}

/** Starts all machines in parallel. The first failure aborts the others. */
export async function startTogether(
  deps: Pick<MoveDeps, "db" | "nodes" | "keyring" | "objects" | "localObjects">,
  sessions: readonly SessionRow[],
  over: AbortSignal,
): Promise<StartedSession[]> {
  const failed = new AbortController();
  const signal = AbortSignal.any([over, failed.signal, AbortSignal.timeout(LIMITS.provisionMs)]);
  const startedAt = performance.now();
  const starts = sessions.map(async (session) => {
    const start = (one: AbortSignal) =>
      startMachineOf(deps, session, {
        machineId: machineIdOf(session),
        spec: startSpec(session),
        signal: one,
      });
    const machine = requireState("running", await untilAnswered(signal, start));
    const total = Math.round(performance.now() - startedAt);
    return { session, timings: { place: 0, ...machine.timings, total }, machine };
  });
  const first = Promise.all(starts).catch((error: unknown) => {
    failed.abort();
    throw error;
  });
  await Promise.allSettled(starts);
  return await first;
}

/** Moves all sessions to live, in the caller's transaction. */
export async function markAllLive(
  { auditKey }: AuditDeps,
  tx: Queries,
  ready: readonly StartedSession[],
): Promise<SessionRow[]> {
  const ids = ready.map(({ session }) => session.id);
  const known = await findSessionsById(tx, ids);
  // An earlier commit succeeded, and only its confirmation was lost.
  if (known.length === ids.length && known.every(({ incarnation }) => incarnation > 0)) return known;
  if (!(await endProvisionalLeases(tx, ids))) {
    const areLeft = known.length === ids.length && known.every(({ state }) => isCreating(state));
    if (!areLeft) throw destroyedMeanwhile();
    // The database was away for so long that the leases could not be renewed.
    const text = "the sessions could not be handed out in time and are given up; try again";
    throw new ApiError("unavailable", text);
  }
  const rows: SessionRow[] = [];
  for (const { session, timings, machine } of ready) {
    const row = await moveSession({ db: tx, auditKey }, session, "provisioned", { timings, machine });
    if (!row) throw destroyedMeanwhile();
    rows.push(row);
  }
  return rows;
}

function destroyedMeanwhile(): ApiError {
  return new ApiError(
    "session_ended",
    "a session was destroyed while it was being made; nothing of it is left",
  );
}

/**
 * Destroys provisional sessions. Idempotent, in any process. No caller knows of these sessions, so their history is
 * deleted as well.
 */
export async function discardSessions(deps: MoveDeps, sessions: readonly SessionRow[]): Promise<void> {
  await Promise.all(
    sessions.map(async (session) => {
      try {
        await destroySession(deps, session, { endReason: "error" });
      } catch (err) {
        if (err instanceof ApiError && err.code === "not_found") return;
        const context = { err, session_id: session.id };
        deps.log.warn(context, "a session could not be discarded yet; the sweep tries again");
      }
    }),
  );
  const ids = sessions.map(({ id }) => id);
  await deleteProvisionalHistory(deps.db, ids).catch((err: unknown) =>
    deps.log.warn({ err }, "the history of discarded sessions could not be deleted"),
  );
}
