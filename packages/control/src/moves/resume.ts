import { LIMITS } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { wakeSession } from "./wake.ts";

/** Wakes a paused session. Waits for a session in creation; does nothing for a live one. */
export async function resumeSession(
  deps: MoveDeps,
  scope: Scope,
  { id, by }: { id: string; by: Caller },
): Promise<SessionRow> {
  const attempt = async () => {
    const session = await getSession(deps.db, scope, id);
    if (session.state === "creating") return BUSY;
    if (session.state === "paused") {
      return session.op === null ? await wakeSession(deps, session, "resume", by) : BUSY;
    }
    if (session.state !== "live") throw notUsable(session);
    // Waits for an operation that stops the guest: a pause, a restore, or a `settle`, which may continue the machine.
    return stopsGuest(session.op) ? BUSY : session;
  };
  const waitMs = LIMITS.creatingWaitMs;
  const text = `the session is not ready after ${waitMs / 1000} s; try again`;
  return await whenFree(deps, id, attempt, { waitMs, late: () => new ApiError("session_not_live", text) });
}
