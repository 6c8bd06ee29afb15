/** Carries out deadlines that passed. Whoever looks does it, in any process, by the same operations that callers use. */

import type { SessionEvent } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type ClockEvent, dueEvent, nextDueAt } from "../deadlines/clocks.ts";
import { claimDueSessions, type DueSession, lockForClocks, saveDueAt } from "../deadlines/due.ts";
import { saveWakeAt } from "../deadlines/wake-at.ts";
import { ApiError } from "../errors/api-error.ts";
import { expirePaused } from "../moves/expire.ts";
import { pauseLiveSession } from "../moves/pause-machine.ts";
import { releaseSession } from "../moves/release-session.ts";
import { saveMove } from "../moves/save-move.ts";
import { WAKE_RETRY_MS, wakeSession } from "../moves/wake.ts";
import { decide } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";
import { withProcesses } from "./kept-alive.ts";

/** Work in hand at once; what is due beyond that waits for the next look. */
const AT_ONCE = 32;
/** Who is attached, and what is in flight, is told by leases: without them a session looks unused. */
const OF_LEASES: ReadonlySet<ClockEvent> = new Set([
  "idle_timeout",
  "last_pty_detached_pause",
  "last_pty_detached_destroy",
]);
const restsOnLeases = (event: ClockEvent) => OF_LEASES.has(event);
/** How long a session that was taken stays out of sight: time to write the intent down, or to try again. */
const TAKEN_MS = 10_000;
/** An operation in flight is to end before its session is destroyed, and a lease to be renewed: how soon that is asked again. */
const HELD_MS = 1_000;
const WAKE_PATIENCE_MS = 600_000;

export async function fireClocks(deps: UpkeepDeps): Promise<void> {
  // What this process knows of activity counts, also when a store that was away kept it from being written.
  await deps.activity.flush();
  await deps.attachments.renew();
  const room = AT_ONCE - deps.operations.backgroundCount;
  if (room <= 0) return;
  for (const session of await claimDueSessions(deps.db, room, TAKEN_MS)) {
    deps.operations.runInBackground(fire(deps, session));
  }
}

async function fire(deps: UpkeepDeps, taken: DueSession): Promise<void> {
  const session = await withProcesses(deps, taken);
  if (!session) return;
  const event = dueEvent(session, session.now);
  if (event === null) return await saveDueAt(deps.db, session, nextDueAt(session));
  if (restsOnLeases(event) && deps.storeWatch.areLeasesStale())
    return await saveDueAt(deps.db, session, after(session.now, HELD_MS));
  deps.log.debug({ session_id: session.id, event }, "a deadline has passed");
  await FIRE[event](deps, session);
}

/** A failure leaves the session as it is, and it is looked at again. */
const FIRE: Record<ClockEvent, (deps: UpkeepDeps, session: DueSession) => Promise<void>> = {
  max_lifetime: async (deps, session) => {
    if (session.state === "paused") await expirePaused(deps, session);
    else await pauseBy(deps, session, "max_lifetime");
  },
  idle_timeout: (deps, session) => pauseUnused(deps, session, "idle_timeout"),
  last_pty_detached_pause: (deps, session) => pauseUnused(deps, session, "last_pty_detached_pause"),
  last_pty_detached_destroy: destroyDetached,
  continuous_live_limit: (deps, session) => pauseBy(deps, session, "continuous_live_limit"),
  wake_at_reached: wakeBySchedule,
  paused_ttl_exceeded: endPaused,
};

async function pauseBy(deps: UpkeepDeps, session: DueSession, event: SessionEvent): Promise<void> {
  await pauseLiveSession(deps, session, { event });
}

/** Decided anew at the claim: a client may have come to another process meanwhile. */
async function pauseUnused(deps: UpkeepDeps, session: DueSession, event: ClockEvent): Promise<void> {
  if (deps.requireDurablePause) return;
  // A preview that was just used is activity that only the node knows of.
  await deps.networkReports.collect().catch(() => undefined);
  await pauseLiveSession(deps, session, { event }, (tx) => isStillDue(deps, tx, session, event));
}

/** One that is not due after all is looked at again when it can be. */
async function isStillDue(
  { storeWatch }: UpkeepDeps,
  tx: Queries,
  session: DueSession,
  event: ClockEvent,
): Promise<boolean> {
  const locked = await lockForClocks(tx, session.id);
  if (locked?.incarnation !== session.incarnation) return false;
  // A store that stood still over the lock has answered for the time after it. What was taken comes up again by itself.
  if (restsOnLeases(event) && storeWatch.areLeasesStale()) return false;
  // Activity that the row does not tell was found out before.
  const last_active_at = new Date(
    Math.max(locked.last_active_at.getTime(), session.last_active_at.getTime()),
  );
  const now = { ...locked, last_active_at };
  if (dueEvent(now, now.now) === event) return true;
  await saveDueAt(tx, session, nextDueAt(now));
  return false;
}

async function destroyDetached(deps: UpkeepDeps, session: DueSession): Promise<void> {
  const event = "last_pty_detached_destroy";
  if (deps.activity.isInUse(session)) return await saveDueAt(deps.db, session, after(session.now, HELD_MS));
  const ended = await deps.db.transaction().execute(async (tx) => {
    const move = decide(session, event);
    return move && (await isStillDue(deps, tx, session, event))
      ? await saveMove(tx, session.id, move)
      : undefined;
  });
  if (ended) await release(deps, ended);
}

/** Interface: a refused wake is retried for ten minutes, then dropped (wire.md 4.8). */
async function wakeBySchedule(deps: UpkeepDeps, session: DueSession): Promise<void> {
  try {
    await wakeSession(deps, session, "wake_at_reached");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    await putOffWake(deps, session, error);
  }
}

async function putOffWake(deps: UpkeepDeps, session: DueSession, reason: ApiError): Promise<void> {
  const dropAt = session.wake_drop_at ?? after(session.now, WAKE_PATIENCE_MS);
  const isOver = dropAt <= session.now;
  const log = { session_id: session.id, reason: reason.message };
  if (isOver) deps.log.warn(log, "a scheduled wake was refused for ten minutes and is dropped");
  else deps.log.info(log, "a scheduled wake was refused; it is tried again");
  await saveWakeAt(
    deps.db,
    session.id,
    isOver
      ? { wakeAt: null }
      : { wakeAt: session.wake_at, retryAt: after(session.now, WAKE_RETRY_MS), dropAt },
    session.wake_at,
  );
}

async function endPaused(deps: UpkeepDeps, session: DueSession): Promise<void> {
  const move = decide(session, "paused_ttl_exceeded");
  const ended = move && (await saveMove(deps.db, session.id, move));
  if (ended) await release(deps, ended);
}

async function release(deps: UpkeepDeps, ended: SessionRow): Promise<void> {
  deps.log.info({ session_id: ended.id, end_reason: ended.end_reason }, "session destroyed");
  deps.signals.moved(ended.id);
  await releaseSession(deps, ended);
}

function after(instant: Date, ms: number): Date {
  return new Date(instant.getTime() + ms);
}
