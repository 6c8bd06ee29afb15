/** Reads a request's head strictly: for which host it is, and what of it goes on. Pure. */
import { isIPv4 } from "node:net";
import type { EgressReason } from "@vivarium/contract/gateway";
import { headerPairs } from "../header-pairs.ts";
import { normaliseName } from "./names.ts";

export interface RequestHead {
  method: string;
  url: string;
  httpVersion: string;
  /** Names and values in turn, as they came. */
  rawHeaders: readonly string[];
}

export type ReadHead =
  /** `headers` without those that are between guest and gateway alone. */
  { host: string; path: string; headers: string[] } | { refused: EgressReason; why: string };

const PORT = 80;
/** Decide where a message ends and whom it is for: no `Connection` header takes them away. */
const FRAMING = new Set(["host", "content-length", "transfer-encoding"]);
const HOP_BY_HOP = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authorization",
  "te",
  "trailer",
  "upgrade",
  "http2-settings",
]);

export function readHead(head: RequestHead): ReadHead {
  const framing = findBadFraming(head);
  if (framing !== undefined) return { refused: "malformed", why: framing };
  const hosts = valuesOf(head.rawHeaders, "host");
  if (hosts.length === 0) return { refused: "no_name", why: "the request names no Host" };
  if (hosts.length > 1) return { refused: "malformed", why: "the request names Host twice" };
  const host = readAuthority(hosts[0] ?? "");
  if (host === null)
    return { refused: "malformed", why: "Host is neither a name nor an address, at port 80" };
  const target = readTarget(head);
  if (target === null) return { refused: "malformed", why: "the request's target is not a path" };
  if (target.host !== undefined && target.host !== host) {
    return { refused: "host_mismatch", why: "the request's target and its Host differ" };
  }
  return { host, path: target.path, headers: withoutHopByHop(head.rawHeaders) };
}

/** True when it asks for a WebSocket, which passes like any other request until its server agrees. */
export function wantsWebSocket(rawHeaders: readonly string[]): boolean {
  return valuesOf(rawHeaders, "upgrade").join().toLowerCase() === "websocket";
}

/** What stands between two neighbours alone stays there. */
export function withoutHopByHop(rawHeaders: readonly string[]): string[] {
  const listed = valuesOf(rawHeaders, "connection").flatMap((value) => value.toLowerCase().split(/[\s,]+/));
  const dropped = new Set([...HOP_BY_HOP, ...listed.filter((name) => !FRAMING.has(name))]);
  return headerPairs(rawHeaders)
    .filter(([name]) => !dropped.has(name.toLowerCase()))
    .flat();
}

export function valuesOf(rawHeaders: readonly string[], wanted: string): string[] {
  return headerPairs(rawHeaders)
    .filter(([name]) => name.toLowerCase() === wanted)
    .map(([, value]) => value);
}

/** What two readers could end at two places, and protocols that would go on unjudged. */
function findBadFraming({ method, httpVersion, rawHeaders }: RequestHead): string | undefined {
  const lengths = valuesOf(rawHeaders, "content-length");
  const codings = valuesOf(rawHeaders, "transfer-encoding");
  const upgrades = valuesOf(rawHeaders, "upgrade");
  if (method === "CONNECT") return "CONNECT is not served";
  if (lengths.length > 1 || codings.length > 1) return "the request gives its length twice";
  if (lengths.length > 0 && codings.length > 0) return "the request gives its length in two ways";
  if (lengths.some((value) => !/^\d{1,15}$/.test(value))) return "Content-Length is not a number";
  if (codings.some((value) => value.toLowerCase() !== "chunked")) return "Transfer-Encoding is not chunked";
  if (codings.length > 0 && httpVersion !== "1.1") return "Transfer-Encoding needs HTTP/1.1";
  if (upgrades.length > 0 && !wantsWebSocket(rawHeaders)) return "the only Upgrade served is websocket";
  return undefined;
}

/** Host in canonical form, where the authority is a name or an address and names no other port. */
function readAuthority(authority: string): string | null {
  const match = /^([^:]+)(?::(\d{1,5}))?$/.exec(authority);
  const host = match?.[1];
  if (host === undefined || (match?.[2] !== undefined && Number(match[2]) !== PORT)) return null;
  return isIPv4(host) ? host : normaliseName(host);
}

function readTarget({ method, url }: RequestHead): { host?: string; path: string } | null {
  if (url.startsWith("/")) return { path: url };
  if (url === "*" && method === "OPTIONS") return { path: url };
  const match = /^http:\/\/([^/?#]+)(.*)$/i.exec(url);
  const host = match?.[1] === undefined ? null : readAuthority(match[1]);
  if (host === null) return null;
  const rest = match?.[2] ?? "";
  return { host, path: rest.startsWith("/") ? rest : `/${rest}` };
}
