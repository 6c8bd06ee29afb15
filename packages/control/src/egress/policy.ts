/** A policy as it is stored: normalised entries without duplicates. One refused entry refuses the whole policy. */
import type { EgressPolicy } from "@vivarium/contract/api";
import { invalidField } from "../http/validation.ts";
import { type OwnHosts, parseEntry } from "./entry.ts";

export interface StoredPolicy {
  mode: EgressPolicy["mode"];
  allow: string[];
}

/** `field` is the name of the list in the caller's body. */
export function normalPolicy({ mode, allow = [] }: EgressPolicy, own: OwnHosts, field: string): StoredPolicy {
  const entries = allow.map((text, index) => {
    const parsed = parseEntry(text, own);
    if ("reason" in parsed) throw invalidField(`${field}[${index}]`, parsed.reason, text);
    return parsed.entry;
  });
  return { mode, allow: [...new Set(entries)] };
}
