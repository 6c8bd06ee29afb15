/** Counts running processes with `keep_alive` as activity of their session. */

import type { GuestProcess } from "@vivarium/contract/guest";
import { dueEvent } from "../deadlines/clocks.ts";
import type { DueSession } from "../deadlines/due.ts";
import { NodeError } from "../fleet/node-error.ts";
import { processesOf } from "../processes/read.ts";
import type { UpkeepDeps } from "./deps.ts";

const ASK_MS = 5_000;
/** If a machine cannot be asked for this long beyond its idle timeout, the session is paused like any idle session. */
const PATIENCE_MS = 600_000;

/**
 * The session with its `keep_alive` processes counted as activity. Undefined if the session is idle but its machine
 * cannot be asked at the moment.
 */
export async function withKeepAlive(deps: UpkeepDeps, session: DueSession): Promise<DueSession | undefined> {
  if (!session.may_keep_alive || dueEvent(session, session.now) !== "idle_timeout") return session;
  try {
    const processes = await processesOf(deps.nodes, session, AbortSignal.timeout(ASK_MS));
    return usedAt(session, keptAliveUntil(processes, session.now));
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    const isOver = idleForMs(session) > (session.idle_timeout_ms ?? 0) + PATIENCE_MS;
    const log = { session_id: session.id, reason: error.message };
    if (isOver) deps.log.warn(log, "an idle session could not be asked for its processes, and is paused");
    else deps.log.info(log, "an idle session cannot be asked for its processes; it will be asked again");
    return isOver ? session : undefined;
  }
}

/** `now` while a `keep_alive` process runs, else the end of the last; at most `now`: the guest's clock may be wrong. */
export function keptAliveUntil(processes: readonly GuestProcess[], now: Date): Date | undefined {
  const ends = processes
    .filter(({ keep_alive }) => keep_alive)
    .map(({ state, ended_at_ms }) => (state === "running" ? now.getTime() : (ended_at_ms ?? 0)));
  return ends.length === 0 ? undefined : new Date(Math.min(now.getTime(), Math.max(...ends)));
}

function usedAt(session: DueSession, at: Date | undefined): DueSession {
  return at && at > session.last_active_at ? { ...session, last_active_at: at } : session;
}

function idleForMs({ now, last_active_at }: DueSession): number {
  return now.getTime() - last_active_at.getTime();
}
