/** Refuses visitors' requests that gate and guest could understand differently. */
import type { IncomingMessage } from "node:http";
import { headerPairs, valuesOf } from "@vivarium/http1/headers";
import { findBadFraming } from "@vivarium/http1/strict-request";

const MAX_HEADERS = 100;
/** Headers that may be sent once at most: the gate reads the first, and the guest could read another. */
const NEVER_TWICE = ["origin", "referer", "sec-fetch-mode", "sec-fetch-site"];

export function isMalformed(request: IncomingMessage, upgrade?: { head: Buffer }): boolean {
  const headers = headerPairs(request.rawHeaders);
  const isSent = (name: string) => valuesOf(headers, name).length > 0;
  return (
    headers.length > MAX_HEADERS ||
    NEVER_TWICE.some((name) => valuesOf(headers, name).length > 1) ||
    !request.url?.startsWith("/") ||
    findBadFraming(request.httpVersion, headers) !== undefined ||
    // Neither a body nor another request may follow an upgrade that is not granted yet.
    (upgrade !== undefined &&
      (upgrade.head.length > 0 || isSent("content-length") || isSent("transfer-encoding")))
  );
}
