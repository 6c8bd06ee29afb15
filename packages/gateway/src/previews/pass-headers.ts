/**
 * Filters the headers between visitor and guest. Requests lose the gate's credentials, hop-by-hop headers, and
 * forwarding headers but the gateway's own. Answers lose headers with effects beyond their own host.
 */
import type { PreviewRoute } from "@vivarium/contract/gateway";
import { type Header, headerPairs, isHopByHop, valuesOf, withoutHopByHop } from "@vivarium/http1/headers";
import { TOKEN_HEADER } from "./gate.ts";
import { isGateCookieName, withoutGateCookies } from "./gate-cookie.ts";
import { type IsTrustedProxy, visitorAddress, visitorScheme } from "./trusted-proxies.ts";
import { withoutTokens } from "./url-token.ts";
import type { Visit } from "./visit.ts";

const NOT_FOR_GUESTS = new Set(["expect", "forwarded", "x-real-ip", "transfer-encoding", TOKEN_HEADER]);
/**
 * Answer headers that are removed. Alt-Svc would lead browsers around the gate. Key pins would outlast the preview.
 * Service-Worker-Allowed would give a script control of paths above its own. No-Vary-Search would let a browser use a
 * page cached for another token without asking the gate. NEL would report links with tokens to a server of the guest.
 */
const NOT_FOR_VISITORS = [
  "transfer-encoding",
  "alt-svc",
  "nel",
  "no-vary-search",
  "public-key-pins",
  "public-key-pins-report-only",
  "service-worker-allowed",
  "set-cookie2",
];
const BODYLESS = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"]);

interface Origin {
  route: PreviewRoute;
  secure: boolean;
  /** The address at the other end of the connection: the visitor's, or a proxy's. */
  peer: string;
  isTrustedProxy: IsTrustedProxy;
}

export function pathForGuest(visit: Visit, route: PreviewRoute): string {
  return route.visibility === "token" ? withoutTokens(visit.url) : visit.url;
}

export function headersForGuest(visit: Visit, origin: Origin): Header[] {
  const kept = withoutHopByHop(visit.headers).flatMap(([name, value]): Header[] => {
    if (isOurs(name)) return [];
    if (name === "authorization" && origin.route.bearer_sha256 !== undefined) return [];
    if (name === "referer") return [[name, withoutTokens(value)]];
    if (name !== "cookie") return [[name, value]];
    const others = withoutGateCookies(value);
    return others === undefined ? [] : [[name, others]];
  });
  return [...kept, ...forwarded(visit, origin), ...framing(visit)];
}

/** Whether the gateway owns this header. Many servers treat `_` and `-` in names alike, so both spellings count. */
function isOurs(name: string): boolean {
  const read = name.replaceAll("_", "-");
  if (isHopByHop(read) || NOT_FOR_GUESTS.has(read) || read.startsWith("x-forwarded-")) return true;
  return read === "content-length" && read !== name;
}

export function headersForVisitor(rawHeaders: readonly string[]): Header[] {
  return withoutHopByHop(headerPairs(rawHeaders), NOT_FOR_VISITORS).flatMap(([name, value]): Header[] => {
    const key = name.toLowerCase();
    if (key === "set-cookie") return isOwnCookie(value) ? [[name, value]] : [];
    if (key !== "clear-site-data") return [[name, value]];
    const rest = clearable(value);
    return rest === "" ? [] : [[name, rest]];
  });
}

function forwarded(visit: Visit, { secure, peer, isTrustedProxy }: Origin): Header[] {
  const [host = ""] = valuesOf(visit.headers, "host");
  const scheme = visitorScheme(visit, peer, isTrustedProxy) ?? (secure ? "https" : "http");
  return [
    ["x-forwarded-for", visitorAddress(visit, peer, isTrustedProxy)],
    ["x-forwarded-proto", scheme],
    ["x-forwarded-host", host],
    ["x-forwarded-port", /:([0-9]+)$/.exec(host)?.[1] ?? (scheme === "https" ? "443" : "80")],
  ];
}

function framing(visit: Visit): Header[] {
  if (visit.isUpgrade) {
    return [
      ["connection", "Upgrade"],
      ["upgrade", "websocket"],
    ];
  }
  const close: Header = ["connection", "close"];
  if (valuesOf(visit.headers, "transfer-encoding").length > 0)
    return [close, ["transfer-encoding", "chunked"]];
  const isSilent = valuesOf(visit.headers, "content-length").length === 0 && !BODYLESS.has(visit.method);
  return isSilent ? [close, ["content-length", "0"]] : [close];
}

/** Whether a Set-Cookie value names a cookie of this host alone, and not the gate's. */
function isOwnCookie(value: string): boolean {
  const [pair = "", ...attributes] = value.split(";");
  const end = pair.indexOf("=");
  const name = end === -1 ? "" : pair.slice(0, end).trim();
  const hasDomain = attributes.some((attribute) => /^\s*domain\s*(=|$)/i.test(attribute));
  return name !== "" && !isGateCookieName(name) && !hasDomain;
}

/** Clear-Site-Data without `"cookies"`, which would clear the cookies of all previews. The rest affects one origin. */
function clearable(value: string): string {
  const kinds = value.split(",").map((kind) => kind.trim().toLowerCase());
  const own = kinds.flatMap((kind) => (kind === '"*"' ? ['"cache"', '"storage"'] : [kind]));
  return [...new Set(own.filter((kind) => kind !== '"cookies"'))].join(", ");
}
