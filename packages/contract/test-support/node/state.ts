/** State of the fake node, with hooks for tests around every call that may fail, wait or be observed. */
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

/** Does what happens without the hook. */
type Proceed = () => Promise<void>;

/** Snapshots in the making. */
interface UnderWay<Spec, Made> {
  spec: Spec;
  done: Promise<Made>;
  /** A delete waits until the snapshot is complete, and no hook delays it. */
  hurry: () => void;
}

export interface FakeNodeOptions {
  /**
   * Commands end with 0 at once, terminals and tunnels open and stay silent, and no traffic is counted, unless a test
   * scripts otherwise. Without this, commands and terminals are processes of this host.
   */
  isScripted?: boolean;
}

export class NodeState {
  /** A directory of this host: the socket, and a directory for each machine and snapshot that has files. */
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

  /** Machines that run, are stopped, or have ended by themselves. */
  readonly machines = new Map<string, FakeMachine>();
  readonly starting = new Map<string, UnderWay<StartSpec, FakeMachine>>();
  readonly stopping = new Map<string, Promise<void>>();
  readonly snapshots = new Map<string, FakeSnapshot>();
  readonly saving = new Map<string, UnderWay<SnapshotSpec, FakeSnapshot>>();
  /** Networks in force, by machine. */
  readonly networks = new Map<string, NetworkSpec>();
  /** Routes in the gateway; `forgetPreviews` drops them. */
  previews: PreviewTable = { version: 0, routes: [] };
  /** The next report. Without a scripted one, it counts the other machines too, without traffic. */
  report: NetworkReport = { counters: [], entries: [], lost: 0, cursor: "0", active_sessions: [] };
  /** How many reports were sent. */
  reportCount = 0;
  readonly wakes = new Wakes();

  /** Requested reports, in order. */
  readonly execs: (ExecCall & { machineId: string })[] = [];
  readonly guestCalls: GuestRequest[] = [];
  /** Streams that `accept` opened. */
  readonly streams: (StreamCall & { stream: Stream })[] = [];
  /** Files of the service itself, by path. */
  readonly files = new Map<string, Buffer>();

  /** Runs before a machine starts. This hook and each below may throw a Refusal, or wait. */
  onStart: (machineId: string, spec: StartSpec) => Promise<void> | void = () => {};
  /** Runs before a stopped machine continues. */
  onContinue: (machineId: string) => Promise<void> | void = () => {};
  /** Runs before a machine is ended, also for a machine that does not exist. */
  onDelete: (machineId: string) => Promise<void> | void = () => {};
  /** Runs before a snapshot is made. */
  onSnapshot: (snapshotId: string, spec: SnapshotSpec) => Promise<void> | void = () => {};
  /** Runs before a network is in force. */
  onNetwork: (machineId: string, spec: NetworkSpec) => Promise<void> | void = () => {};
  /** Runs before routes are in force. */
  onPreviews: (table: PreviewTable) => Promise<void> | void = () => {};
  /** Runs before a file of the service is written; may abort the answer. */
  onFile: (path: string, response: ServerResponse) => void = () => {};
  /** Replaces a command; `output` begins its answer. */
  onExec: (call: ExecCall, output: () => Output, proceed: Proceed) => Promise<void> | void;
  /** Replaces the answers of the guest. */
  onGuest: (asked: GuestRequest, proceed: Proceed) => Promise<void> | void = (_asked, proceed) => proceed();
  /** Replaces a terminal or a tunnel; `accept` opens it and returns the machine's side. */
  onStream: (call: StreamCall, accept: () => Stream, proceed: Proceed) => Promise<void> | void;

  readonly isScripted: boolean;

  constructor({ isScripted = false }: FakeNodeOptions = {}) {
    this.isScripted = isScripted;
    this.onExec = isScripted ? (_call, output) => output().exit() : (_call, _output, proceed) => proceed();
    this.onStream = isScripted ? (_call, accept) => void accept() : (_call, _accept, proceed) => proceed();
  }

  get wakeOutcomes(): ReadonlyMap<string, WakeOutcome> {
    return this.wakes.outcomes;
  }

  newMachine(machine_id: string, spec: StartSpec): FakeMachine {
    return new FakeMachine({ machine_id, spec, dir: join(this.folder, machine_id) });
  }

  /** Adds a machine that no start created: an orphan. */
  addMachine(machineId: string, state: "running" | "held" = "running", spec: Partial<StartSpec> = {}): void {
    const whole = { template: "base", size: "small", hostname: "stray", no_sudo: false, ...spec };
    this.machines.set(machineId, Object.assign(this.newMachine(machineId, whole), { state }));
  }

  /** Simulates root in a guest: no copy of the machine can change identity. */
  makeUnfit(machineId: string): void {
    const machine = this.machines.get(machineId);
    if (machine) machine.isUnfit = true;
  }

  /** Simulates the death of a QEMU: the machine stays listed as `ended`. */
  endMachine(machineId: string, reason: string): void {
    this.machines.get(machineId)?.end(reason);
  }

  /** Simulates damage to the node's file: the node no longer knows any routes. */
  forgetPreviews(): void {
    this.previews = { version: 0, routes: [] };
  }

  /** Simulates visitors of a paused session. */
  visit(wakeId: string, sessionId: string): void {
    this.wakes.visit(wakeId, sessionId);
  }
}
