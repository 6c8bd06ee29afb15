/** What the fake node has, and what a test says about it: hooks around every call that may fail, wait or be watched. */
import { mkdtempSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  ExecCall,
  NetworkReport,
  NetworkSpec,
  NodeInfo,
  PreviewTable,
  SnapshotSpec,
  StartSpec,
  WakeOutcome,
} from "@vivarium/contract/node";
import type { GuestRequest } from "./guest.ts";
import { FakeMachine } from "./machine.ts";
import type { Output } from "./output.ts";
import type { FakeSnapshot } from "./snapshots.ts";
import type { Stream, StreamCall } from "./streams.ts";
import { Wakes } from "./wakes.ts";

/** Lets happen what happens without the hook. */
type GoOn = () => Promise<void>;

/** What is being made. */
interface UnderWay<Spec, Made> {
  spec: Spec;
  done: Promise<Made>;
  /** A delete waits until it is made, and lets no hook hold it up. */
  hurry: () => void;
}

export interface FakeNodeOptions {
  /**
   * Commands end with 0 at once, terminals and tunnels open and say nothing, and the traffic of no machine is counted,
   * unless a test says otherwise. Without it, commands and terminals are processes of this host.
   */
  isScripted?: boolean;
}

export class NodeState {
  /** Of this host: the socket, and a directory for each machine and snapshot that has files. */
  readonly folder = mkdtempSync(join(tmpdir(), "fake-node-"));
  readonly socketPath = join(this.folder, "node.sock");

  info: NodeInfo = {
    node_id: "fake",
    version: "0.0.0",
    isolation: "emulated",
    qemu_version: "10.0.0",
    reflink: true,
    cgroup_v2: true,
    disk: { free_bytes: 50 * 2 ** 30, total_bytes: 100 * 2 ** 30 },
    has_disk_room: true,
    baselines: ["small", "medium", "large"].map((size) => ({ template: "base", size })),
    gateway: true,
  };

  /** Those that run, are held, or have ended by themselves. */
  readonly machines = new Map<string, FakeMachine>();
  readonly starting = new Map<string, UnderWay<StartSpec, FakeMachine>>();
  readonly stopping = new Map<string, Promise<void>>();
  readonly snapshots = new Map<string, FakeSnapshot>();
  readonly saving = new Map<string, UnderWay<SnapshotSpec, FakeSnapshot>>();
  /** What is in force, by machine. */
  readonly networks = new Map<string, NetworkSpec>();
  /** What the gateway has; lost with `forgetPreviews`. */
  previews: PreviewTable = { version: 0, routes: [] };
  /** The next report. Where nothing is scripted, it counts the other machines too, which had no traffic. */
  report: NetworkReport = { counters: [], entries: [], lost: 0, cursor: "0", active_sessions: [] };
  /** How often it was told. */
  reportCount = 0;
  readonly wakes = new Wakes();

  /** What was asked for, in order. */
  readonly execs: (ExecCall & { machineId: string })[] = [];
  readonly guestCalls: GuestRequest[] = [];
  /** Streams that `accept` opened. */
  readonly streams: (StreamCall & { stream: Stream })[] = [];
  /** Files of the service's own, by path. */
  readonly files = new Map<string, Buffer>();

  /** Before a machine runs. This and each that follows throws a Refusal, or waits. */
  onStart: (machineId: string, spec: StartSpec) => Promise<void> | void = () => {};
  /** Before a machine that is held goes on. */
  onContinue: (machineId: string) => Promise<void> | void = () => {};
  /** Before a machine is ended, also one that there is not. */
  onDelete: (machineId: string) => Promise<void> | void = () => {};
  /** Before a snapshot is made. */
  onSnapshot: (snapshotId: string, spec: SnapshotSpec) => Promise<void> | void = () => {};
  /** Before a network is in force. */
  onNetwork: (machineId: string, spec: NetworkSpec) => Promise<void> | void = () => {};
  /** Before routes are in force. */
  onPreviews: (table: PreviewTable) => Promise<void> | void = () => {};
  /** Before a file of the service's own is there; may break the answer off. */
  onFile: (path: string, response: ServerResponse) => void = () => {};
  /** In place of a command; `output` begins its answer. */
  onExec: (call: ExecCall, output: () => Output, goOn: GoOn) => Promise<void> | void;
  /** In place of what the guest answers. */
  onGuest: (asked: GuestRequest, goOn: GoOn) => Promise<void> | void = (_asked, goOn) => goOn();
  /** In place of a terminal or a tunnel; `accept` opens it, and gives the machine's side of it. */
  onStream: (call: StreamCall, accept: () => Stream, goOn: GoOn) => Promise<void> | void;

  readonly isScripted: boolean;

  constructor({ isScripted = false }: FakeNodeOptions = {}) {
    this.isScripted = isScripted;
    this.onExec = isScripted ? (_call, output) => output().exit() : (_call, _output, goOn) => goOn();
    this.onStream = isScripted ? (_call, accept) => void accept() : (_call, _accept, goOn) => goOn();
  }

  get wakeOutcomes(): ReadonlyMap<string, WakeOutcome> {
    return this.wakes.outcomes;
  }

  newMachine(machine_id: string, spec: StartSpec): FakeMachine {
    return new FakeMachine({ machine_id, spec, dir: join(this.folder, machine_id) });
  }

  /** A machine that nobody asked this node for. */
  addMachine(machineId: string, state: "running" | "held" = "running", spec: Partial<StartSpec> = {}): void {
    const whole = { template: "base", size: "small", hostname: "stray", no_sudo: false, ...spec };
    this.machines.set(machineId, Object.assign(this.newMachine(machineId, whole), { state }));
  }

  /** As root in a guest can do it: no copy of it becomes another machine. */
  makeUnfit(machineId: string): void {
    const machine = this.machines.get(machineId);
    if (machine) machine.isUnfit = true;
  }

  /** What a machine does when its QEMU dies: it stays listed as `ended`. */
  endMachine(machineId: string, reason: string): void {
    this.machines.get(machineId)?.end(reason);
  }

  /** The node's file is damaged: it knows no routes any more. */
  forgetPreviews(): void {
    this.previews = { version: 0, routes: [] };
  }

  /** Visitors come to a paused session. */
  visit(wakeId: string, sessionId: string): void {
    this.wakes.visit(wakeId, sessionId);
  }
}
