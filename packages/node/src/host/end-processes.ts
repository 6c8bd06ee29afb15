/**
 * Ends every process of a slot's machine and removes its cgroup. The uid finds them on a host without cgroups; the group
 * finds those that have not changed their uid yet, or wait for QEMU as root.
 */
import { everyStep } from "@vivarium/kit/every-step";
import type { Cgroups } from "./cgroup.ts";
import type { Slot } from "./slots.ts";
import { killUid } from "./uid.ts";

export async function endProcesses(cgroups: Cgroups, slot: Slot): Promise<void> {
  await everyStep([
    { name: `end of the processes of uid ${slot.uid}`, run: () => killUid(slot.uid) },
    { name: "removal of the cgroup", run: () => cgroups.remove(slot) },
  ]);
}
