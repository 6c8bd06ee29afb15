/** The machines of this node in memory: running, starting, stopping, and ended but not yet deleted. */
import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { NodeError } from "../node-error.ts";
import type { Machine } from "./machine.ts";

export class MachineTable {
  readonly running = new Map<string, Machine>();
  readonly starting = new Map<string, { spec: StartSpec; done: Promise<Machine> }>();
  /** The reasons of the ends, by machine. */
  readonly ended = new Map<string, string>();
  readonly stopping = new Map<string, Promise<void>>();

  /** The running or held machine. Throws, with the reason, if there is none. */
  get(machineId: string): Machine {
    const machine = this.running.get(machineId);
    if (machine?.isRunning) return machine;
    const ended = this.ended.get(machineId);
    if (machine || ended !== undefined) throw new NodeError("machine_gone", ended ?? "the machine has ended");
    throw new NodeError("machine_not_found", `no machine ${machineId} on this node`);
  }

  /** The machine, unless it is held: then it throws `machine_held`. */
  getRunning(machineId: string): Machine {
    const machine = this.get(machineId);
    if (machine.isHeld) throw new NodeError("machine_held", "the machine stands still; continue it first");
    return machine;
  }

  list(): MachineStatus[] {
    return [
      ...[...this.running.values()].map((machine) => machine.status()),
      ...[...this.starting.keys()].map((machine_id): MachineStatus => ({ machine_id, state: "starting" })),
      ...[...this.ended].map(
        ([machine_id, reason]): MachineStatus => ({ machine_id, state: "ended", reason }),
      ),
    ];
  }

  /** Adds the machine. If QEMU ends by itself, the reason is kept until control deletes the machine. */
  add(machine: Machine): void {
    this.running.set(machine.id, machine);
    machine.onEnd((reason) => {
      if (this.running.get(machine.id) === machine) this.markEnded(machine.id, reason);
    });
  }

  markEnded(machineId: string, reason: string): void {
    this.running.delete(machineId);
    this.ended.set(machineId, reason);
  }

  get count(): number {
    return this.running.size + this.starting.size;
  }
}
