import { ApiError, SessionNotFound } from "../errors/api-error.ts";
import type { SessionRow } from "./store.ts";

/** The error for a request that the session's state does not allow. */
export function notUsable(session: SessionRow): ApiError {
  switch (session.state) {
    case "failed":
      return new ApiError(
        "conflict",
        `the session has failed (${session.status_reason ?? "no reason is known"}); it can only be read and destroyed`,
      );
    case "lifetime_expired":
      return new ApiError(
        "session_ended",
        "the session has reached its max_lifetime_ms; it can only be read and destroyed",
      );
    case "node_lost":
      return new ApiError(
        "session_node_lost",
        "the node of this session is lost; recover or destroy the session",
      );
    case "destroyed":
      return new SessionNotFound();
    default:
      return new ApiError("session_not_live", `the session is ${session.state}; try again`);
  }
}
