import type { Scope } from "../access/principal.ts";
import { readDeadlineTime } from "../db/time.ts";
import { dueEvent } from "../deadlines/clocks.ts";
import { getSession } from "../sessions/get.ts";
import { decide } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { lifetimeReason } from "./pause-machine.ts";
import { saveMove } from "./save-move.ts";

/** True when the paused session's lifetime is over by now: then it is put down as expired, should it still stand. */
export async function expireIfOver(deps: MoveDeps, session: SessionRow): Promise<boolean> {
  if (session.max_lifetime_ms === null) return false;
  if (dueEvent(session, await readDeadlineTime(deps.db)) !== "max_lifetime") return false;
  await expirePaused(deps, session);
  return true;
}

/** The session as a reader sees it: one whose lifetime is over is told as that, as every verb says it. */
export async function readSession(deps: MoveDeps, scope: Scope, id: string): Promise<SessionRow> {
  const session = await getSession(deps.db, scope, id);
  const isOver = session.state === "paused" && session.op === null && (await expireIfOver(deps, session));
  return isOver ? await getSession(deps.db, scope, id) : session;
}

/** A paused session stays as it is saved, for good. */
export async function expirePaused(deps: MoveDeps, session: SessionRow): Promise<void> {
  const move = decide(session, "max_lifetime");
  const row = move && (await saveMove(deps.db, session.id, move, { statusReason: lifetimeReason(session) }));
  if (!row) return;
  deps.log.info({ session_id: session.id }, "session expired");
  deps.signals.moved(session.id);
}
