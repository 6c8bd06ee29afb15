/** A route as the gateway gets it. Pure. */

import type { SessionState } from "@vivarium/contract/api";
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { cookieKey } from "./secrets.ts";
import type { RouteOfSession } from "./store.ts";

export function toPreviewRoute(key: Buffer, row: RouteOfSession): PreviewRoute {
  const context = { orgId: row.org_id, sessionId: row.session_id, port: row.port };
  return {
    session_id: row.session_id,
    port: row.port,
    version: row.version,
    visibility: row.visibility,
    ...(row.token_sha256 !== null && { token_sha256: row.token_sha256 }),
    ...(row.bearer_sha256 !== null && { bearer_sha256: row.bearer_sha256 }),
    cookie_key: cookieKey(key, context, row.version),
    ...(row.login_url !== null && { login_url: row.login_url }),
    wake_on_http: row.wake_on_http,
    state: ROUTE_STATES[row.state],
  };
}

/** The table has no routes of `destroyed` sessions. */
const ROUTE_STATES: Record<SessionState, PreviewRoute["state"]> = {
  creating: "unavailable",
  live: "live",
  paused: "paused",
  lifetime_expired: "gone",
  node_lost: "gone",
  failed: "gone",
  destroyed: "gone",
};
