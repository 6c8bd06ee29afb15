/**
 * Pauses every live session before the host goes down. Nothing is started meanwhile, and the sessions wake by their next
 * use after the host is back. A session that cannot be paused is left: it fails when its machine is gone.
 */
import { sleep } from "@vivarium/kit/clock";
import type { MoveDeps } from "../moves/deps.ts";
import { claimAndPause } from "../moves/pause-machine.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { isCreating } from "../sessions/state.ts";
import { findSessionById, listActiveOfCallers, type SessionRow } from "../sessions/store.ts";

/** Pauses at a time: a capture mostly waits for the disk, and more of them only make each other wait. */
const PARALLEL = 4;
const ATTEMPTS = 3;
const PAUSE_MS = 250;
/** How long sessions that are being created are waited for once all others are paused. */
const CREATING_PATIENCE_MS = 20_000;

export interface PausedAll {
  paused: number;
  /** Sessions that stay live or creating. */
  left: number;
}

/** Ends early when the signal aborts. */
export async function pauseAll(deps: MoveDeps, stopped: AbortSignal): Promise<PausedAll> {
  deps.startGate.close();
  const attempts = new Map<string, number>();
  const isGivenUp = ({ id }: SessionRow) => (attempts.get(id) ?? 0) >= ATTEMPTS;
  let paused = 0;
  let active = await listAgain(deps, stopped);
  deps.log.info({ active: active.length }, "pausing all sessions, because the host goes down");
  let waitUntil = performance.now() + CREATING_PATIENCE_MS;
  while (!stopped.aborted) {
    const due = active.filter((session) => !isCreating(session.state) && !isGivenUp(session));
    if (due.length > 0) {
      await inParallel(due, stopped, async (session) => {
        attempts.set(session.id, (attempts.get(session.id) ?? 0) + 1);
        if (await pauseForShutdown(deps, session)) paused++;
        deps.log.info({ paused }, "sessions paused so far");
      });
      waitUntil = performance.now() + CREATING_PATIENCE_MS;
    } else if (!active.some(({ state }) => isCreating(state)) || performance.now() > waitUntil) break;
    else await sleep(PAUSE_MS, stopped);
    active = await listAgain(deps, stopped);
  }
  const left = active.length;
  deps.log[left > 0 ? "warn" : "info"]({ paused, left }, "all sessions that can be paused are paused");
  return { paused, left };
}

/** Whether this call has paused it. */
async function pauseForShutdown(deps: MoveDeps, { id }: SessionRow): Promise<boolean> {
  try {
    return await whenFree(deps, id, async () => {
      const session = await findSessionById(deps.db, id);
      if (session?.state !== "live") return false;
      if (session.op !== null) return BUSY;
      const outcome = await claimAndPause(deps, session, { event: "host_shutdown" });
      return outcome === BUSY ? BUSY : true;
    });
  } catch (err) {
    deps.log.warn({ err, session_id: id }, "a session could not be paused before the host goes down");
    return false;
  }
}

/** Lists until the database answers. */
async function listAgain(deps: MoveDeps, stopped: AbortSignal): Promise<SessionRow[]> {
  while (!stopped.aborted) {
    const active = await listActiveOfCallers(deps.db).catch((err: unknown) => {
      deps.log.warn({ err }, "sessions cannot be listed yet");
      return undefined;
    });
    if (active) return active;
    await sleep(PAUSE_MS, stopped);
  }
  return [];
}

async function inParallel<T>(
  all: readonly T[],
  stopped: AbortSignal,
  work: (one: T) => Promise<void>,
): Promise<void> {
  const rest = [...all];
  const worker = async () => {
    for (let one = rest.shift(); one !== undefined && !stopped.aborted; one = rest.shift()) await work(one);
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
}
