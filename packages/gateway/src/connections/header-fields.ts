/** Turns header lists into the objects that Node's HTTP/2 takes, and back. */
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, sensitiveHeaders } from "node:http2";
import type { Header } from "@vivarium/http1/headers";

/** Headers that HTTP/2 has other means for. */
const NOT_IN_HTTP2 = new Set(["host", "transfer-encoding", "connection", "keep-alive", "upgrade"]);

/** `secret` names a header that must not be kept in the compression table of either side. */
export function fieldsOf(headers: readonly Header[], secret?: string): OutgoingHttpHeaders {
  const fields: OutgoingHttpHeaders = {};
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    if (NOT_IN_HTTP2.has(key)) continue;
    const known = fields[key];
    if (known === undefined) fields[key] = value;
    else fields[key] = [...(Array.isArray(known) ? known : [String(known)]), value];
  }
  if (secret !== undefined) Object.assign(fields, { [sensitiveHeaders]: [secret.toLowerCase()] });
  return fields;
}

/** Without pseudo headers. */
export function pairsOf(fields: IncomingHttpHeaders): Header[] {
  return Object.entries(fields).flatMap(([name, value]): Header[] => {
    if (name.startsWith(":") || value === undefined) return [];
    return (Array.isArray(value) ? value : [value]).map((one): Header => [name, one]);
  });
}
