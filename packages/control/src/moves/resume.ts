import { LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { wakeSession } from "./wake.ts";

/** Wakes a paused session; one that is being created is waited for, one that is live stays as it is (wire.md 4.8). */
export async function resumeSession(deps: MoveDeps, scope: Scope, id: string): Promise<SessionRow> {
  const attempt = async () => {
    const session = await getSession(deps.db, scope, id);
    if (session.state === "creating") return BUSY;
    if (session.state === "paused") {
      return session.op === null ? await wakeSession(deps, session, "resume") : BUSY;
    }
    if (session.state !== "live") throw notUsable(session);
    // A pause that came first is carried out first, and a machine that stands still goes on before it counts as live.
    return stopsGuest(session.op) ? BUSY : session;
  };
  return await whenFree(deps, id, attempt, { waitMs: LIMITS.creatingWaitMs, late: notInTime });
}

function notInTime(): ApiError {
  return new ApiError(
    "session_not_live",
    `the session is not ready after ${LIMITS.creatingWaitMs / 1000} s; try again`,
  );
}
