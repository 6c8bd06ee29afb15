import type { Log } from "@vivarium/kit/log";
import type { NodeConfig } from "../config.ts";
import { markRunning, resumeAs } from "./guest-state.ts";
import type { Machine } from "./machine.ts";
import type { MachineTable } from "./table.ts";

export interface ContinueDeps {
  config: NodeConfig;
  table: MachineTable;
  log: Log;
}

/**
 * A held machine goes on as who it is, reseeded: its saved state may have become another machine meanwhile. It was
 * introduced before it was held, so that this is not the moment at which it turns out to be unfit.
 */
export async function continueMachine(deps: ContinueDeps, id: string): Promise<Machine> {
  const machine = deps.table.get(id);
  return await machine.exclusive(async () => {
    if (!machine.isHeld) return machine;
    await machine.qmp.execute("cont");
    await resumeAs(machine.agent).catch(async (error) => {
      await machine.qmp.execute("stop").catch(() => {});
      throw error;
    });
    // Last: until then a restarted daemon finds it held, and continuing it again does no harm.
    await markRunning(deps.config, machine);
    deps.log.info({ machine: id }, "machine continued");
    return machine;
  });
}
