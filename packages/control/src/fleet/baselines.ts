/** The baselines of a node for a template. Pure. */
import type { NodeInfo } from "@vivarium/contract/node";

export type Baseline = NodeInfo["baselines"][number];

/** The baselines of all sizes, of the template's named version, or else of the node's current one. */
export function baselinesFor(info: NodeInfo | undefined, template: string): Baseline[] {
  const [name, version] = template.split("@", 2);
  const all = (info?.baselines ?? []).filter((baseline) => baseline.template === name);
  if (version !== undefined) return all.filter((baseline) => baseline.version === version);
  // An older node does not mark its current version, but lists it first.
  if (all.every(({ is_current: isCurrent }) => isCurrent === undefined))
    return all.filter((baseline) => baseline.version === all[0]?.version);
  return all.filter(({ is_current: isCurrent }) => isCurrent);
}
