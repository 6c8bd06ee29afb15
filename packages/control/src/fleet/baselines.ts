/** Which baselines a node has for what a start names. Pure. */
import type { NodeInfo } from "@vivarium/contract/node";

export type Baseline = NodeInfo["baselines"][number];

/** One per size, of the version that is named; of the node's current version where none is. */
export function baselinesFor(info: NodeInfo | undefined, template: string): Baseline[] {
  const [name, version] = template.split("@", 2);
  const all = (info?.baselines ?? []).filter((baseline) => baseline.template === name);
  if (version !== undefined) return all.filter((baseline) => baseline.version === version);
  // A node that does not mark its current version lists it first.
  if (all.every(({ is_current: isCurrent }) => isCurrent === undefined))
    return all.filter((baseline) => baseline.version === all[0]?.version);
  return all.filter(({ is_current: isCurrent }) => isCurrent);
}
