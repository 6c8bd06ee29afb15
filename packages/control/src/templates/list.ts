import type { Template } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { listBuilds } from "./build-store.ts";
import { officialTemplates } from "./official.ts";
import { toOwnTemplate } from "./record.ts";
import { listVersions } from "./store.ts";

/** Official templates, then the caller's own, each by name. A caller's template with an official name is hidden. */
export async function listTemplates(
  { db, node }: { db: Database; node: NodeState },
  scope: Scope,
): Promise<Template[]> {
  const info = await node.current();
  const official = officialTemplates(info);
  const taken = new Set(official.map(({ name }) => name));
  // Before the versions: a build that ends meanwhile is a version then.
  const builds = Map.groupBy(await listBuilds(db, scope), ({ name }) => name);
  const versions = Map.groupBy(await listVersions(db, scope), ({ name }) => name);
  const names = [...new Set([...versions.keys(), ...builds.keys()])]
    .filter((name) => !taken.has(name))
    .sort();
  const own = names.flatMap((name) => {
    const rows = { versions: versions.get(name) ?? [], builds: builds.get(name) ?? [] };
    return toOwnTemplate(rows, info) ?? [];
  });
  return [...official, ...own];
}
