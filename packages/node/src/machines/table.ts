/** The machines of this node in memory: running, starting, stopping, ended but not yet deleted, and what is left. */
import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import type { Cgroups } from "../host/cgroup.ts";
import { NodeError } from "../node-error.ts";
import type { Machine } from "./machine.ts";

/** Why a machine is not there any more, as its status gives it. */
export type Ending = { reason: string } & Pick<MachineStatus, "cause">;

/** Finds why the kernel killed a machine. */
type Kills = Pick<Cgroups, "memoryKillOf">;

export class MachineTable {
  readonly #kills: Kills;
  readonly running = new Map<string, Machine>();
  readonly starting = new Map<
    string,
    {
      spec: StartSpec;
      stateKeyId?: string | undefined;
      done: Promise<Machine>;
      /** Aborted by a delete, for which a boot does not run to its end. */
      unwanted?: AbortController;
    }
  >();
  readonly ended = new Map<string, Ending>();
  readonly stopping = new Map<string, Promise<void>>();
  /** Machines that are gone, and of which something could not be removed yet. */
  readonly leftover = new Set<string>();

  constructor(kills: Kills) {
    this.#kills = kills;
  }

  /** The running or held machine. Throws, with the reason, if there is none. */
  get(machineId: string): Machine {
    const machine = this.running.get(machineId);
    if (machine?.isRunning) return machine;
    const ended = this.ended.get(machineId);
    if (machine || ended) throw new NodeError("machine_gone", ended?.reason ?? "the machine has ended");
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
        ([machine_id, ending]): MachineStatus => ({ machine_id, state: "ended", ...ending }),
      ),
    ];
  }

  /** Adds the machine. If QEMU ends by itself, the reason is kept until control deletes the machine. */
  add(machine: Machine): void {
    this.running.set(machine.id, machine);
    machine.onEnd({
      // The group is there until control deletes the machine.
      killReason: () => this.#kills.memoryKillOf(machine.slot),
      listener: (reason) => {
        if (this.running.get(machine.id) === machine) this.markEnded(machine.id, { reason });
      },
    });
  }

  markEnded(machineId: string, ending: Ending): void {
    this.running.delete(machineId);
    this.ended.set(machineId, ending);
  }

  get count(): number {
    return this.running.size + this.starting.size;
  }
}
