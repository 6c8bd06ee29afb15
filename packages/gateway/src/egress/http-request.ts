/** Reads a request's host, path and headers to forward, and refuses ambiguous requests. Pure. */
import type { IncomingMessage } from "node:http";
import { isIPv4 } from "node:net";
import type { EgressReason } from "@vivarium/contract/gateway";
import { type Header, headerPairs, valuesOf, withoutHopByHop } from "@vivarium/http1/headers";
import { findBadFraming } from "@vivarium/http1/strict-request";
import { normaliseName } from "../policy/names.ts";

export type RequestHead = Pick<IncomingMessage, "method" | "url" | "httpVersion" | "rawHeaders">;

export type ReadHead =
  /** `headers` has no hop-by-hop headers. */
  { host: string; path: string; headers: Header[] } | { refused: EgressReason; why: string };

const PORT = 80;

export function readHead(head: RequestHead): ReadHead {
  const headers = headerPairs(head.rawHeaders);
  const unserved = findUnserved(head, headers) ?? findBadFraming(head.httpVersion, headers);
  if (unserved !== undefined) return { refused: "malformed", why: unserved };
  const hosts = valuesOf(headers, "host");
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
  return { host, path: target.path, headers: withoutHopByHop(headers) };
}

/** Finds a switch to another protocol, whose bytes would pass unchecked. Only WebSockets are served. */
function findUnserved({ method }: RequestHead, headers: readonly Header[]): string | undefined {
  if (method === "CONNECT") return "CONNECT is not served";
  const upgrades = valuesOf(headers, "upgrade");
  if (upgrades.length > 0 && upgrades.join().toLowerCase() !== "websocket") {
    return "the only Upgrade served is websocket";
  }
  return undefined;
}

/** Returns the host in canonical form; null unless it is a name or an IPv4 address, at port 80. */
function readAuthority(authority: string): string | null {
  const match = /^([^:]+)(?::(\d{1,5}))?$/.exec(authority);
  const host = match?.[1];
  if (host === undefined || (match?.[2] !== undefined && Number(match[2]) !== PORT)) return null;
  return isIPv4(host) ? host : normaliseName(host);
}

function readTarget({ method, url = "" }: RequestHead): { host?: string; path: string } | null {
  if (url.startsWith("/")) return { path: url };
  if (url === "*" && method === "OPTIONS") return { path: url };
  const match = /^http:\/\/([^/?#]+)(.*)$/i.exec(url);
  const host = match?.[1] === undefined ? null : readAuthority(match[1]);
  if (host === null) return null;
  const rest = match?.[2] ?? "";
  return { host, path: rest.startsWith("/") ? rest : `/${rest}` };
}
