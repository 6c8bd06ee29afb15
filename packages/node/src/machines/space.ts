import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { DiskGate } from "../disks/gate.ts";
import type { MachineTable } from "./table.ts";

const LOOK_MS = 2_000;

/** QEMU stops a guest whose write finds the pool full, before the guest learns of it. It goes on once there is room. */
export async function continueWhenThereIsRoom(
  deps: { table: MachineTable; gate: DiskGate; log: Log },
  until: AbortSignal,
): Promise<void> {
  while (!until.aborted) {
    await sleep(LOOK_MS, until);
    const waiting = [...deps.table.running.values()].filter((machine) => machine.isOutOfSpace);
    if (waiting.length === 0 || !(await deps.gate.hasRoom())) continue;
    for (const machine of waiting) {
      machine.isOutOfSpace = false;
      deps.log.warn({ machine: machine.id }, "the pool has room again; the machine goes on");
      if (!machine.isHeld) await machine.qmp.execute("cont").catch(() => {});
    }
  }
}
