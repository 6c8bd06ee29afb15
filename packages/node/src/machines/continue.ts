import { attachVolume } from "./attach-volume.ts";
import type { MachineDeps } from "./deps.ts";
import { resumeAs } from "./handshake.ts";
import { markRunning } from "./journal.ts";
import type { Machine } from "./machine.ts";

type ContinueDeps = Pick<MachineDeps, "config" | "table" | "volumes" | "log">;

/**
 * Continues a held machine under its own identity, but reseeded: its saved state may have become another machine
 * meanwhile. Its guest passed the handshake before it was stopped, so a failure here does not make it `guest_unfit`.
 */
export async function continueMachine(deps: ContinueDeps, id: string): Promise<Machine> {
  const machine = deps.table.get(id);
  return await machine.queue.run(async () => {
    if (!machine.isHeld) return machine;
    await machine.qmp.execute("cont");
    const stayFrozen = machine.spec.volume !== undefined;
    const resume = async () => {
      await resumeAs(machine.agent, { stayFrozen });
      await attachVolume(deps, machine);
    };
    await resume().catch(async (error) => {
      await machine.qmp.execute("stop").catch(() => {});
      throw error;
    });
    // Last, because a daemon that restarts before this finds the machine held, and continuing it again does no harm.
    await markRunning(deps.config, machine);
    deps.log.info({ machine: id }, "machine continued");
    return machine;
  });
}
