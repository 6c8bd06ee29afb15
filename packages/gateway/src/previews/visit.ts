/** Reads what the gate and the pages use of a visitor's request. */
import type { IncomingMessage } from "node:http";
import { type Header, headerPairs, valuesOf } from "@vivarium/http1/headers";
import { type PreviewHost, parseHost, type Site } from "./host.ts";

export interface Visit {
  host: PreviewHost;
  method: string;
  url: string;
  /** Headers with names in lower case, in the order in which they were sent, repeated ones too. */
  headers: Header[];
  isUpgrade: boolean;
}

/** Undefined unless the request has exactly one Host, a preview's. */
export function readVisit(site: Site, request: IncomingMessage, isUpgrade: boolean): Visit | undefined {
  const headers = headerPairs(request.rawHeaders).map(([name, value]): Header => [name.toLowerCase(), value]);
  const hosts = valuesOf(headers, "host");
  const host = hosts.length === 1 ? parseHost(site, hosts[0]) : undefined;
  if (host === undefined) return undefined;
  return { host, method: request.method ?? "", url: request.url ?? "", headers, isUpgrade };
}

/** Whether a browser loads the answer as a page: from a link, a form or the address bar, not as an image, say. */
export function isNavigation({ headers, method, isUpgrade }: Visit): boolean {
  if (isUpgrade) return false;
  if (headers.some(([name]) => name.startsWith("sec-fetch-"))) {
    return valuesOf(headers, "sec-fetch-mode").includes("navigate");
  }
  return method === "GET" && valuesOf(headers, "accept").some((value) => value.includes("text/html"));
}
