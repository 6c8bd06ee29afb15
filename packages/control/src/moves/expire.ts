import type { Scope } from "../access/principal.ts";
import { readDeadlineTime } from "../db/time.ts";
import { dueEvent } from "../deadlines/clocks.ts";
import { getSession } from "../sessions/get.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { lifetimeReason } from "./pause-machine.ts";
import { moveSession } from "./save-move.ts";

/** Marks the paused session as expired if its lifetime is over. Returns whether it is over. */
export async function expireIfLifetimeOver(deps: MoveDeps, session: SessionRow): Promise<boolean> {
  if (session.max_lifetime_ms === null) return false;
  if (dueEvent(session, await readDeadlineTime(deps.db)) !== "max_lifetime") return false;
  await expirePaused(deps, session);
  return true;
}

/** Reads a session. If it is paused, its lifetime is over and no operation holds it, it is first marked as expired. */
export async function readSession(deps: MoveDeps, scope: Scope, id: string): Promise<SessionRow> {
  const session = await getSession(deps.db, scope, id);
  const isOver =
    session.state === "paused" && session.op === null && (await expireIfLifetimeOver(deps, session));
  return isOver ? await getSession(deps.db, scope, id) : session;
}

/** Marks a paused session as expired. Its saved state is kept, but it cannot wake any more. */
export async function expirePaused(deps: MoveDeps, session: SessionRow): Promise<void> {
  const details = { statusReason: lifetimeReason(session) };
  const row = await moveSession(deps, session, "max_lifetime", details);
  if (!row) return;
  deps.log.info({ session_id: session.id }, "session expired");
  deps.signals.moved(session.id);
}
