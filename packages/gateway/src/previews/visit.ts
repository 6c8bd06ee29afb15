/** A visitor's request, as far as the gate and the pages use it. */
import type { IncomingMessage } from "node:http";
import { headerPairs } from "@vivarium/http1/headers";
import { type PreviewHost, parseHost, type Site } from "./host.ts";

export interface Visit {
  host: PreviewHost;
  method: string;
  url: string;
  /** Names in lower case, in order, each as often as it was sent. */
  headers: [name: string, value: string][];
  isUpgrade: boolean;
}

export function readVisit(site: Site, request: IncomingMessage, isUpgrade: boolean): Visit | undefined {
  const headers = headerPairs(request.rawHeaders).map(([name, value]): [string, string] => [
    name.toLowerCase(),
    value,
  ]);
  const hosts = headers.filter(([name]) => name === "host");
  const host = hosts.length === 1 ? parseHost(site, hosts[0]?.[1]) : undefined;
  if (host === undefined) return undefined;
  return { host, method: request.method ?? "", url: request.url ?? "", headers, isUpgrade };
}

export function valuesOf(visit: Pick<Visit, "headers">, name: string): string[] {
  return visit.headers.filter((header) => header[0] === name).map((header) => header[1]);
}

/** Whether a browser loads the answer as a page for a person. */
export function isNavigation(visit: Pick<Visit, "headers" | "method" | "isUpgrade">): boolean {
  if (visit.isUpgrade) return false;
  if (visit.headers.some(([name]) => name.startsWith("sec-fetch-"))) {
    return valuesOf(visit, "sec-fetch-mode").includes("navigate");
  }
  return visit.method === "GET" && valuesOf(visit, "accept").some((value) => value.includes("text/html"));
}
