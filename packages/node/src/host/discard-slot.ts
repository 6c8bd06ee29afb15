/** Empties and frees a slot. One that cannot be emptied stays taken. */
import { everyStep } from "@vivarium/kit/every-step";
import type { Cgroups } from "./cgroup.ts";
import { endProcesses } from "./end-processes.ts";
import { removeNamespace } from "./netns.ts";
import { freeSlot, type Slot } from "./slots.ts";

export async function discardSlot(cgroups: Cgroups, slot: Slot): Promise<void> {
  await everyStep([
    { name: "end of its processes", run: () => endProcesses(cgroups, slot) },
    { name: "removal of its namespace", run: () => removeNamespace(slot) },
  ]);
  await freeSlot(slot);
}
