/** Renders key-encryption keys. */
import type { KekStatus } from "@vivarium/sdk";
import { renderTable } from "./table.ts";

export function renderKeks({ current, keys, unsealed }: KekStatus): string {
  if (keys.length === 0) return "This service has no key-encryption key: it refuses secrets.";
  const rows = keys.map(({ id, is_loaded: isLoaded, data_keys: count }) => [
    id,
    id === current ? "seals" : isLoaded ? "opens" : "is missing",
    String(count),
    id !== current && count === 0 ? "can be removed" : "",
  ]);
  const table = renderTable(["KEY", "USE", "DATA KEYS", ""], rows);
  return unsealed === 0 ? table : `${table}\n${unsealed} more have variables that are not sealed yet`;
}
