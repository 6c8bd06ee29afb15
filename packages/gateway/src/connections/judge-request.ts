/** Decides whether a request of a guest is sent to a bound origin. Pure. */
import type { ConnectionCode } from "@vivarium/contract/gateway";
import { type Header, valuesOf } from "@vivarium/http1/headers";
import { normaliseName } from "../policy/names.ts";
import { findRule, type PathRule, readPath } from "./path-rules.ts";

/** The head of a request, whatever its version of HTTP. */
export interface RequestHead {
  method: string;
  target: string;
  /** Values of Host, or of `:authority`. */
  authorities: readonly string[];
  /** Without pseudo headers. */
  headers: readonly Header[];
  /** Why two readers could find different ends of this request. */
  badFraming?: string | undefined;
}

export interface Refusal {
  status: number;
  code: ConnectionCode;
  error: string;
}

export interface Allowed {
  path: string;
  rule: PathRule;
}

const PORT = 443;

export function refusal(code: ConnectionCode, error: string): Refusal {
  const status = { connection_request_invalid: 400, connection_upstream: 502 }[code as string] ?? 403;
  return { status, code, error };
}

/** Checks a request against the rules of its Connection. */
export function judgeRequest(
  head: RequestHead,
  { host, methods, rules }: { host: string; methods: ReadonlySet<string>; rules: readonly PathRule[] },
): Allowed | Refusal {
  const why = findInvalid(head, host);
  if (why !== undefined) return refusal("connection_request_invalid", why);
  const path = readPath(head.target);
  if (path === undefined) {
    return refusal("connection_request_invalid", "the path can be read in more than one way");
  }
  const rule = findRule(rules, path);
  if (!rule || !methods.has(head.method)) {
    return refusal("connection_rule_denied", "the Connection does not allow this method and path");
  }
  return { path, rule };
}

function findInvalid(
  { method, authorities, headers, badFraming }: RequestHead,
  host: string,
): string | undefined {
  if (badFraming !== undefined) return badFraming;
  if (method === "CONNECT" || method === "TRACE") return `${method} is not served`;
  if (authorities.length !== 1 || !isAuthority(authorities[0] ?? "", host)) {
    return `the request is not for ${host}, which this connection is for`;
  }
  if (valuesOf(headers, "upgrade").length > 0) return "no other protocol is served here";
  const expected = valuesOf(headers, "expect");
  if (expected.some((value) => value.toLowerCase() !== "100-continue"))
    return "this expectation is not served";
  if (valuesOf(headers, "te").some((value) => value.toLowerCase() !== "trailers")) return "TE is not served";
  return undefined;
}

function isAuthority(authority: string, host: string): boolean {
  const [, name = "", port] = /^([^:]+)(?::(\d{1,5}))?$/.exec(authority) ?? [];
  return normaliseName(name) === host && (port === undefined || Number(port) === PORT);
}
