/** Looks up machines of the fake node by id. */
import { MachineId, type MachineStatus } from "@vivarium/contract/node";
import type { FakeMachine } from "./machine.ts";
import { Refusal } from "./refusal.ts";
import type { NodeState } from "./state.ts";

export function machineId(id: string): string {
  if (MachineId.safeParse(id).success) return id;
  throw new Refusal("machine_not_found", "no machine of this name on this node");
}

/** The machine, if it has started and not ended; it may be stopped. */
export function alive({ machines }: NodeState, id: string): FakeMachine {
  const machine = machines.get(id);
  if (!machine) throw new Refusal("machine_not_found", `no machine ${id} on this node`);
  if (machine.state === "ended") throw new Refusal("machine_gone", machine.reason);
  return machine;
}

export function running(state: NodeState, id: string): FakeMachine {
  const machine = alive(state, id);
  if (machine.state === "running") return machine;
  throw new Refusal("machine_held", "the machine stands still; continue it first");
}

export function listMachines({ machines, starting }: NodeState): MachineStatus[] {
  return [
    ...[...machines.values()].map(({ status }) => status),
    ...[...starting.keys()]
      .filter((id) => !machines.has(id))
      .map((machine_id) => ({ machine_id, state: "starting" as const })),
  ];
}

export function findMachine(state: NodeState, id: string): MachineStatus {
  const found = listMachines(state).find(({ machine_id }) => machine_id === id);
  if (found) return found;
  throw new Refusal("machine_not_found", `no machine ${id} on this node`);
}
