/** Waits until a session is live, and wakes a paused one. */
import { LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { wakeSession } from "../moves/wake.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";

export interface LiveSession {
  session: SessionRow;
  /** Time until the session was live, if this call found it paused. */
  restoreMs?: number;
}

/**
 * The session, once it can take a guest operation. Waits while it is being created, paused or restored, and wakes a
 * paused one.
 */
export async function waitForLive(
  deps: MoveDeps,
  scope: Scope,
  id: string,
  waitMs: number = LIMITS.creatingWaitMs,
): Promise<LiveSession> {
  let wokenFrom: number | undefined;
  let last: SessionRow | undefined;
  const attempt = async (): Promise<LiveSession | typeof BUSY> => {
    last = await getSession(deps.db, scope, id);
    if (last.state === "creating") return BUSY;
    if (last.state === "paused") {
      wokenFrom ??= performance.now();
      if (last.op === null) await wakeSession(deps, last, "operation_wake");
      return BUSY;
    }
    if (last.state !== "live") throw notUsable(last);
    if (stopsGuest(last.op)) return BUSY;
    return {
      session: last,
      ...(wokenFrom !== undefined && { restoreMs: Math.round(performance.now() - wokenFrom) }),
    };
  };
  return await whenFree(deps, id, attempt, { waitMs, late: () => notInTime(waitMs, last) });
}

function notInTime(waitMs: number, session: SessionRow | undefined): ApiError {
  const what = session?.state === "creating" ? "still being created" : "not ready";
  return new ApiError("session_not_live", `the session is ${what} after ${waitMs / 1000} s; try again`);
}
