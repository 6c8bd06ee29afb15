/** Decides by the tables alone which visitors are admitted to a preview. */
import type { GatewayTables, PreviewRoute } from "@vivarium/contract/gateway";
import { valuesOf } from "@vivarium/http1/headers";
import { hasGateCookie, mintGateCookie } from "./gate-cookie.ts";
import { hostOfUrl, type Site } from "./host.ts";
import { routeOf } from "./lookup.ts";
import { matchesHash } from "./secrets.ts";
import { tokensIn, withoutTokens } from "./url-token.ts";
import { isNavigation, type Visit } from "./visit.ts";

export type Verdict =
  /** Answered with the 404 page, which does not show whether there is a preview. */
  | { is: "hidden" }
  | { is: "unauthorized" }
  | { is: "login"; location: string }
  /** The token in the URL is valid: the browser is redirected to the URL without the token and gets the gate cookie. */
  | { is: "entering"; location: string; setCookie: string }
  | { is: "foreign_origin" }
  | { is: "admitted"; route: PreviewRoute; setCookie?: string };

type Admission = "none" | "public" | "url" | "header" | "cookie";

/** Checked in place of a missing route, so that the time of the answer does not show whether there is one. */
const NO_ROUTE: Pick<PreviewRoute, "version" | "cookie_key" | "visibility" | "token_sha256"> = {
  version: 1,
  cookie_key: "00".repeat(32),
  visibility: "token",
  token_sha256: undefined,
};

export const TOKEN_HEADER = "vivarium-preview-token";

export function judge(site: Site, tables: GatewayTables | undefined, visit: Visit, nowMs: number): Verdict {
  const found = tables && routeOf(tables, visit.host);
  const admission = admissionOf(site, found ?? NO_ROUTE, visit, nowMs);
  if (found === undefined) return { is: "hidden" };
  const hasBearer = found.bearer_sha256 === undefined || presentsBearer(found.bearer_sha256, visit);
  if (!hasBearer || admission === "none") return refused(found, visit, hasBearer);
  if (isWorkerScript(visit)) return { is: "hidden" };
  if (admission !== "url") {
    if (admission !== "cookie" || comesFromOwnPages(site, visit)) return { is: "admitted", route: found };
    return visit.isUpgrade ? { is: "foreign_origin" } : { is: "hidden" };
  }
  const setCookie = mintGateCookie({ route: found, hostName: visit.host.name }, site.secure, nowMs);
  if (!isNavigation(visit) || !["GET", "HEAD"].includes(visit.method)) {
    return { is: "admitted", route: found, setCookie };
  }
  // An absolute URL, because a path that begins with `//` would name another host.
  return { is: "entering", location: visit.host.origin + withoutTokens(visit.url), setCookie };
}

function refused(route: PreviewRoute, visit: Visit, hasBearer: boolean): Verdict {
  if (route.login_url !== undefined && isNavigation(visit)) {
    return { is: "login", location: route.login_url };
  }
  return { is: hasBearer ? "hidden" : "unauthorized" };
}

function admissionOf(site: Site, route: typeof NO_ROUTE, visit: Visit, nowMs: number): Admission {
  const byUrl = tokensIn(visit.url).map((token) => matchesHash(token, route.token_sha256));
  const byHeader = valuesOf(visit.headers, TOKEN_HEADER)
    .slice(0, 1)
    .map((token) => matchesHash(token, route.token_sha256));
  const subject = { route, hostName: visit.host.name };
  const byCookie = hasGateCookie(subject, valuesOf(visit.headers, "cookie").join("; "), site.secure, nowMs);
  if (route.visibility === "public") return "public";
  if (byUrl.includes(true)) return "url";
  if (byHeader.includes(true)) return "header";
  return byCookie ? "cookie" : "none";
}

/**
 * Whether a browser asks for the script of a service worker. A worker sees links with tokens before the gate does, and
 * a public route's worker would stay when the route requires tokens.
 */
function isWorkerScript(visit: Visit): boolean {
  return valuesOf(visit.headers, "service-worker").includes("script");
}

function presentsBearer(sha256: string, visit: Visit): boolean {
  const values = valuesOf(visit.headers, "authorization");
  const [, token = ""] = /^Bearer (\S+)$/.exec(values[0] ?? "") ?? [];
  return matchesHash(token, sha256) && values.length === 1;
}

/**
 * Whether a request comes from a page of the same session; a WebSocket must come from this preview. Hazard: a browser
 * sends the cookie with requests of any page, and takes all previews of a node for one site. Links may be opened from
 * everywhere.
 */
function comesFromOwnPages(site: Site, visit: Visit): boolean {
  const [origin] = valuesOf(visit.headers, "origin");
  if (visit.isUpgrade) return origin === visit.host.origin;
  const isLink = isNavigation(visit) && ["GET", "HEAD"].includes(visit.method);
  if (isLink) return true;
  const fetchSite = valuesOf(visit.headers, "sec-fetch-site")[0];
  const isForeign = fetchSite === "cross-site" || fetchSite === "same-site";
  if (origin === undefined && !isForeign) return true;
  return hostOfUrl(site, origin ?? valuesOf(visit.headers, "referer")[0])?.sessionId === visit.host.sessionId;
}
