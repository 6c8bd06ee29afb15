/** Carries out deadlines that have passed, with the same operations that callers use. Any process may do it. */

import type { SessionEvent } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type ClockEvent, dueEvent, nextDueAt } from "../deadlines/clocks.ts";
import { claimDueSessions, type DueSession, lockForClocks, saveDueAt } from "../deadlines/due.ts";
import { saveWakeAt } from "../deadlines/wake-at.ts";
import { ApiError } from "../errors/api-error.ts";
import { expirePaused } from "../moves/expire.ts";
import { claimAndPause } from "../moves/pause-machine.ts";
import { releaseSession } from "../moves/release-session.ts";
import { moveSession } from "../moves/save-move.ts";
import { WAKE_RETRY_MS, wakeSession } from "../moves/wake.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";
import { withKeepAlive } from "./kept-alive.ts";

/** Maximum number of background tasks of this process. Further due sessions wait for the next check. */
const MAX_IN_FLIGHT = 32;
/**
 * Deadlines that depend on leases of attached clients and of operations in flight. While leases are stale, a session in
 * use looks idle, so these deadlines wait.
 */
const LEASE_BASED: ReadonlySet<ClockEvent> = new Set([
  "idle_timeout",
  "last_pty_detached_pause",
  "last_pty_detached_destroy",
]);
/** How long a due session stays claimed: enough to write the intent of an operation. After that it is due again. */
const CLAIM_MS = 10_000;
/** Time until the next check of a deadline that waits for an operation in flight, or for leases to be renewed. */
const RECHECK_MS = 1_000;
/** How long a refused scheduled wake is retried before it is dropped. */
const WAKE_PATIENCE_MS = 600_000;

export async function fireClocks(deps: UpkeepDeps): Promise<void> {
  // A scheduled wake that is refused for a shutdown must not count as refused: the next start carries it out.
  if (deps.startGate.isClosed) return;
  // Activity that this process could not write while the database was away must count.
  await deps.activity.flush();
  await deps.attachments.renew();
  const free = MAX_IN_FLIGHT - deps.operations.backgroundCount;
  if (free <= 0) return;
  for (const session of await claimDueSessions(deps.db, free, CLAIM_MS)) {
    deps.operations.runInBackground(fire(deps, session));
  }
}

async function fire(deps: UpkeepDeps, due: DueSession): Promise<void> {
  const session = await withKeepAlive(deps, due);
  if (!session) return;
  const event = dueEvent(session, session.now);
  if (event === null) return await saveDueAt(deps.db, session, nextDueAt(session));
  if (LEASE_BASED.has(event) && deps.storeWatch.areLeasesStale())
    return await saveDueAt(deps.db, session, after(session.now, RECHECK_MS));
  deps.log.debug({ session_id: session.id, event }, "a deadline has passed");
  await FIRE[event](deps, session);
}

/** The action of each deadline. A failure leaves the session as it is, and due again when its claim ends. */
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
  await claimAndPause(deps, session, { event });
}

/** Race: a client may attach in another process after the decision. The deadline is checked again with the claim. */
async function pauseUnused(deps: UpkeepDeps, session: DueSession, event: ClockEvent): Promise<void> {
  // Use of a preview is activity that only the node knows of.
  await deps.networkReports.collect().catch(() => undefined);
  await claimAndPause(deps, session, { event }, (tx) => isStillDue(deps, tx, session, event));
}

/** Checks the deadline again on the locked row. If it has not passed, sets the next check. */
async function isStillDue(
  { storeWatch }: UpkeepDeps,
  tx: Queries,
  session: DueSession,
  event: ClockEvent,
): Promise<boolean> {
  const locked = await lockForClocks(tx, session.id);
  if (locked?.incarnation !== session.incarnation) return false;
  // The database may have been away while the lock was waited for, and leases may have lapsed. The session is due again
  // when its claim ends.
  if (LEASE_BASED.has(event) && storeWatch.areLeasesStale()) return false;
  // `session` may include activity that is not in the row: processes with `keep_alive`.
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
  if (deps.activity.isInUse(session))
    return await saveDueAt(deps.db, session, after(session.now, RECHECK_MS));
  const ended = await deps.db.transaction().execute(async (tx) => {
    const isDue = await isStillDue(deps, tx, session, event);
    return isDue ? await moveSession({ ...deps, db: tx }, session, event) : undefined;
  });
  if (ended) await release(deps, ended);
}

/** A refused wake is retried for ten minutes, then dropped. */
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
  else deps.log.info(log, "a scheduled wake was refused and will be retried");
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
  const ended = await moveSession(deps, session, "paused_ttl_exceeded");
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
