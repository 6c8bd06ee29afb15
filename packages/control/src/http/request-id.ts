import type { IncomingMessage } from "node:http";
import { ID_PREFIXES, REQUEST_ID_PATTERN } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";

/** The caller's X-Request-Id when it is well-formed, else a new one. */
export function requestId(request: IncomingMessage): string {
  const given = request.headers["x-request-id"];
  if (typeof given === "string" && REQUEST_ID_PATTERN.test(given)) return given;
  return newRequestId();
}

export function newRequestId(): string {
  return ID_PREFIXES.request + randomId();
}
