/** Reads the origin of a Connection: one https host that can be reached by its name, on port 443. */
import { type OwnHosts, parseEntry, type StoredPolicy } from "../egress/entry.ts";
import { invalidField } from "../http/validation.ts";

const FORM =
  "must be https://host, with a public name and without path, query, user or another port than 443";
const ORIGIN = /^https:\/\/([^/?#@\\\s:]+)(:443)?\/?$/i;
const ADDRESS = /^[0-9.]+$/;

/** The normalised host. `field` is the name of the origin in the caller's body. */
export function hostOf(origin: string, own: OwnHosts, field: string): string {
  const host = ORIGIN.exec(origin)?.[1];
  if (host === undefined || host.includes("*") || ADDRESS.test(host)) throw invalidField(field, FORM);
  const parsed = parseEntry(host, own);
  if ("reason" in parsed) throw invalidField(field, parsed.reason);
  return parsed.entry;
}

/** Whether the policy lets the session reach the host on port 443. */
export function isCovered({ mode, allow }: StoredPolicy, host: string): boolean {
  if (mode === "allow") return true;
  return allow.some((entry) => {
    const [name = "", port] = entry.split(":");
    if (port !== undefined && port !== "443") return false;
    return name.startsWith("*.") ? host.endsWith(name.slice(1)) : name === host;
  });
}
