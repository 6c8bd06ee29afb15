/**
 * The behaviour of every implementation of contract/node with saved states: captures, held machines, starts from a
 * snapshot.
 */
import { captures } from "./snapshots/captures.ts";
import { children } from "./snapshots/children.ts";
import { copies } from "./snapshots/copies.ts";
import { disksAlone } from "./snapshots/disks-alone.ts";
import { heldMachines } from "./snapshots/held-machines.ts";
import { snapshotRefusals } from "./snapshots/refusals.ts";
import { sealed } from "./snapshots/sealed.ts";
import { makeSetting, type SnapshotTraits, type SnapshottingNode } from "./snapshots/setting.ts";

export function snapshotContract(makeNode: () => Promise<SnapshottingNode>, traits: SnapshotTraits): void {
  const setting = makeSetting(makeNode, traits);
  captures(setting);
  children(setting);
  heldMachines(setting);
  copies(setting);
  sealed(setting);
  disksAlone(setting);
  snapshotRefusals(setting);
}
