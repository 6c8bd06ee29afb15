/**
 * What a request may not be, whoever sends it: anything that two readers could understand differently. Node's parser
 * refuses most of it; this refuses the rest, so that a guest sees no framing but ours.
 */
import type { IncomingMessage } from "node:http";
import { headerPairs } from "../header-pairs.ts";

export const MAX_HEADER_BYTES = 16 * 1024;
const MAX_HEADERS = 100;
/** The gate looks at these, and at one of each: a guest must not be shown another. */
const NEVER_TWICE = ["origin", "referer", "sec-fetch-mode", "sec-fetch-site"];

export function isMalformed(request: IncomingMessage, upgrade?: { head: Buffer }): boolean {
  const pairs = headerPairs(request.rawHeaders);
  const all = (name: string) => pairs.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
  const lengths = all("content-length");
  const codings = all("transfer-encoding");
  const isOld = request.httpVersionMajor !== 1 || request.httpVersionMinor !== 1;
  return (
    pairs.length > MAX_HEADERS ||
    NEVER_TWICE.some((name) => all(name).length > 1) ||
    !request.url?.startsWith("/") ||
    lengths.length + codings.length > 1 ||
    codings.some((coding) => isOld || coding.trim().toLowerCase() !== "chunked") ||
    lengths.some((length) => !/^[0-9]{1,15}$/.test(length)) ||
    // Nothing may follow an upgrade before it was granted: not a body, not another request.
    (upgrade !== undefined && (upgrade.head.length > 0 || lengths.length + codings.length > 0))
  );
}

/** Other upgrades (`h2c`) are ordinary requests: the wish is left out. */
export function wantsWebSocket(request: IncomingMessage): boolean {
  return (
    request.method === "GET" &&
    request.headers.upgrade?.toLowerCase() === "websocket" &&
    request.httpVersion === "1.1"
  );
}
