import type { Template } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { officialTemplates } from "./official.ts";
import { toTemplate } from "./record.ts";
import { listVersions } from "./store.ts";

/** Official templates, then the caller's own, each by name. A caller's template with an official name is hidden. */
export async function listTemplates(
  { db, node }: { db: Database; node: NodeState },
  scope: Scope,
): Promise<Template[]> {
  const info = await node.current();
  const official = officialTemplates(info);
  const taken = new Set(official.map(({ name }) => name));
  const own = (await listVersions(db, scope)).filter(({ name }) => !taken.has(name));
  const byName = [...Map.groupBy(own, ({ name }) => name).values()];
  return [...official, ...byName.flatMap((rows) => (rows[0] ? [toTemplate(rows[0], rows, info)] : []))];
}
