/** A machine of the fake node: a directory of this host, and process groups in place of a guest. */
import type { MachineStatus, NodeErrorCode, StartSpec } from "@vivarium/contract/node";
import type { FakeProcess } from "./fake-processes.ts";
import type { FakeSnapshot } from "./fake-snapshots.ts";
import { killGroup } from "./host-command.ts";

export interface FakeMachine {
  status: MachineStatus;
  spec: StartSpec;
  /** Host directory that holds the machine's files; `workspace` in it stands for /workspace. */
  dir: string;
  groups: Set<number>;
  /** Aborted when the machine ends: its running commands die and their answers break off. */
  life: AbortController;
  started: Promise<void>;
  /** Guest path → host path of files that were put outside /workspace. */
  placed: Map<string, string>;
  processes: Map<string, FakeProcess>;
  /** Break off what is under way with the guest. */
  underWay: Set<() => void>;
  /** Settles when no capture and no continue is under way. */
  turn: Promise<unknown>;
  isDeleted: boolean;
  /** Its guest refuses to become another machine, and so does every copy of it. */
  isUnfit: boolean;
}

export interface FakeState {
  dir: string;
  machines: Map<string, FakeMachine>;
  snapshots: Map<string, FakeSnapshot>;
}

export class Refusal extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export function found(state: FakeState, machineId: string): FakeMachine {
  const machine = state.machines.get(machineId);
  if (machine && !machine.isDeleted) return machine;
  throw new Refusal("machine_not_found", "no such machine on this node");
}

/** The machine, started and not ended; it may stand still. */
export function alive(state: FakeState, machineId: string): FakeMachine {
  const machine = found(state, machineId);
  if (machine.status.state === "running" || machine.status.state === "held") return machine;
  if (machine.status.state === "starting")
    throw new Refusal("agent_unavailable", "the machine is still starting");
  throw new Refusal("machine_gone", machine.status.reason ?? "the machine has ended");
}

export function running(state: FakeState, machineId: string): FakeMachine {
  const machine = alive(state, machineId);
  if (machine.status.state === "running") return machine;
  throw new Refusal("machine_held", "the machine stands still; continue it first");
}

export function endMachine(machine: FakeMachine, reason: string): void {
  machine.status = { machine_id: machine.status.machine_id, state: "ended", reason };
  machine.life.abort();
  breakOff(machine);
  for (const pgid of machine.groups) killGroup(pgid);
}

/** What a machine does when it is held: its processes stand still, and whoever spoke to them is cut off. */
export function breakOff(machine: FakeMachine): void {
  for (const end of machine.underWay) end();
}

export function valid<T>(
  result:
    | { success: true; data: T }
    | { success: false; error: { issues: { path: PropertyKey[]; message: string }[] } },
): T {
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new Refusal("invalid", `${issue?.path.join(".")}: ${issue?.message}`);
}
