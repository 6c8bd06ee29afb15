/** Carries out deadlines that passed. Whoever looks does it, in any process, by the same operations that callers use. */
import type { SessionEvent } from "@vivarium/contract/api";
import { ApiError } from "../http/api-error.ts";
import { type ClockEvent, dueEvent, nextDueAt } from "./clocks.ts";
import { claimDueSessions, type DueSession, saveDueAt, saveWakeAt } from "./deadlines-store.ts";
import { expirePaused } from "./expire.ts";
import { captureSession, type PauseDeps } from "./pause-machine.ts";
import { releaseSession } from "./release-session.ts";
import { decide } from "./state.ts";
import { saveMove } from "./store.ts";
import { type WakeDeps, wakeSession } from "./wake.ts";

export type ClockDeps = PauseDeps & WakeDeps & { requireDurablePause: boolean };

/** Work in hand at once; what is due beyond that waits for the next look. */
const AT_ONCE = 32;
/** How long a session that was taken stays out of sight: time to write the intent down, or to try again. */
const TAKEN_MS = 10_000;
const WAKE_RETRY_MS = 5_000;
const WAKE_PATIENCE_MS = 600_000;

export async function fireClocks(deps: ClockDeps): Promise<void> {
  // What this process knows of activity counts, also when a store that was away kept it from being written.
  await deps.activity.flush();
  const room = AT_ONCE - deps.operations.behindCount;
  if (room <= 0) return;
  for (const session of await claimDueSessions(deps.db, room, TAKEN_MS)) {
    deps.operations.behind(fire(deps, session));
  }
}

async function fire(deps: ClockDeps, session: DueSession): Promise<void> {
  const event = dueEvent(session, session.now);
  if (event === null) return await saveDueAt(deps.db, session, nextDueAt(session));
  deps.log.debug({ session_id: session.id, event }, "a deadline has passed");
  await FIRE[event](deps, session);
}

/** A failure leaves the session as it is, and it is looked at again. */
const FIRE: Record<ClockEvent, (deps: ClockDeps, session: DueSession) => Promise<void>> = {
  max_lifetime: async (deps, session) => {
    if (session.state === "paused") await expirePaused(deps, session);
    else await pauseBy(deps, session, "max_lifetime");
  },
  idle_timeout: async (deps, session) => {
    if (!deps.requireDurablePause) await pauseBy(deps, session, "idle_timeout");
  },
  continuous_live_limit: (deps, session) => pauseBy(deps, session, "continuous_live_limit"),
  wake_at_reached: wakeBySchedule,
  paused_ttl_exceeded: endPaused,
};

async function pauseBy(deps: ClockDeps, session: DueSession, event: SessionEvent): Promise<void> {
  await captureSession(deps, session, { event });
}

/** Interface: a refused wake is retried for ten minutes, then dropped (wire.md 4.8). */
async function wakeBySchedule(deps: ClockDeps, session: DueSession): Promise<void> {
  try {
    await wakeSession(deps, session, "wake_at_reached");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    await putOffWake(deps, session, error);
  }
}

async function putOffWake(deps: ClockDeps, session: DueSession, reason: ApiError): Promise<void> {
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
  );
}

async function endPaused(deps: ClockDeps, session: DueSession): Promise<void> {
  const move = decide(session, "paused_ttl_exceeded");
  const ended = move && (await saveMove(deps.db, session.id, move));
  if (!ended) return;
  deps.log.info({ session_id: session.id, end_reason: ended.end_reason }, "session destroyed");
  deps.signals.moved(session.id);
  await releaseSession(deps, ended);
}

function after(instant: Date, ms: number): Date {
  return new Date(instant.getTime() + ms);
}
