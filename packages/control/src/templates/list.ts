import type { Template } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { officialTemplates } from "./official.ts";
import { toTemplate } from "./record.ts";
import { listVersions, type TemplateRow } from "./store.ts";

/** Official templates, then the caller's own, each by name. A caller's template with an official name is hidden. */
export async function listTemplates(
  { db, node }: { db: Database; node: NodeState },
  scope: Scope,
): Promise<Template[]> {
  const info = await node.current();
  const official = officialTemplates(info);
  const taken = new Set(official.map(({ name }) => name));
  const byName = new Map<string, TemplateRow[]>();
  for (const row of await listVersions(db, scope)) {
    if (!taken.has(row.name)) byName.set(row.name, [...(byName.get(row.name) ?? []), row]);
  }
  const own = [...byName.values()].flatMap((rows) => (rows[0] ? [toTemplate(rows[0], rows, info)] : []));
  return [...official, ...own];
}
