/** The answer to an expose. */
import type { Exposed } from "@vivarium/contract/api";
import { type PreviewUrls, previewUrl, withToken } from "../sessions/preview-urls.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { Route } from "./expose.ts";

export function toExposed({ previewSite }: PreviewUrls, route: Route): Exposed {
  const { session, row, result, ingressToken, authToken } = route;
  const url = previewUrl(previewSite, session.id, row.port);
  const expiresAt = endOfLifetime(session);
  return {
    session_id: session.id,
    port: row.port,
    preview_url: ingressToken === undefined ? url : withToken(url, ingressToken),
    visibility: row.visibility,
    auth: row.auth,
    result,
    ...(session.state === "live" && session.guest_ip !== null && { guest_ip: session.guest_ip }),
    ...(ingressToken !== undefined && { ingress_token: ingressToken }),
    ...(authToken !== undefined && { auth_token: authToken }),
    ...(row.login_url !== null && { login_url: row.login_url }),
    ...(expiresAt && { expires_at: expiresAt.toISOString() }),
  };
}

/** A route lives as long as its session. */
function endOfLifetime({ created_at, max_lifetime_ms }: SessionRow): Date | undefined {
  return max_lifetime_ms === null ? undefined : new Date(created_at.getTime() + max_lifetime_ms);
}
