import { LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { ApiError, sessionNotFound } from "../http/api-error.ts";
import { getSession } from "../sessions/get.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Moves by another process are noticed at this pace; those of this process at once. */
const POLL_MS = 250;

/** The session once it can take a guest operation; waits while it is being provisioned (wire.md 4.6). */
export async function waitForLive(
  { db, signals }: { db: Database; signals: SessionSignals },
  scope: Scope,
  id: string,
  waitMs: number = LIMITS.creatingWaitMs,
): Promise<SessionRow> {
  const deadline = Date.now() + waitMs;
  for (;;) {
    const session = await getSession(db, scope, id);
    if (session.state === "live") return session;
    if (session.state !== "creating") throw notUsable(session);
    const remainingMs = deadline - Date.now();
    if (remainingMs <= 0) {
      throw new ApiError(
        "session_not_live",
        `the session is still being created after ${waitMs / 1000} s; try again`,
      );
    }
    await signals.waitForMove(id, Math.min(POLL_MS, remainingMs));
  }
}

/** Why a session in another state takes no guest operation. */
export function notUsable(session: SessionRow): ApiError {
  switch (session.state) {
    case "failed":
      return new ApiError(
        "conflict",
        `the session has failed (${session.status_reason ?? "no reason is known"}); it can only be read and destroyed`,
      );
    case "lifetime_expired":
      return new ApiError("session_ended", "the session has reached its max_lifetime_ms");
    case "node_lost":
      return new ApiError(
        "session_node_lost",
        "the node of this session is lost; recover or destroy the session",
      );
    case "destroyed":
      return sessionNotFound();
    default:
      return new ApiError("session_not_live", `the session is ${session.state}`);
  }
}
