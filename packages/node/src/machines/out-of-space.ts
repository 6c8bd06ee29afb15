import { sleep } from "@vivarium/kit/clock";
import type { MachineDeps } from "./deps.ts";
import { setClock } from "./follow-clock.ts";

const CHECK_MS = 2_000;

/** Continues machines that QEMU stopped because a write found the pool full, once there is space, and sets their clocks. */
export async function continueWhenSpaceIsFree(
  deps: Pick<MachineDeps, "table" | "gate" | "log">,
  until: AbortSignal,
): Promise<void> {
  while (!until.aborted) {
    await sleep(CHECK_MS, until);
    const waiting = [...deps.table.running.values()].filter((machine) => machine.isOutOfSpace);
    if (waiting.length === 0 || !(await deps.gate.hasSpace())) continue;
    for (const machine of waiting) {
      machine.isOutOfSpace = false;
      deps.log.warn({ machine: machine.id }, "the pool has room again; the machine goes on");
      if (!machine.isHeld) await machine.qmp.execute("cont").catch(() => {});
      // Not awaited: a slow agent must not delay the other machines.
      void setClock(deps, machine);
    }
  }
}
