/** State of the fake node, with hooks for tests around the calls that can fail, wait or be observed. */
import { mkdtempSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  BuildStage,
  ConnectionLease,
  ExecCall,
  NetworkReport,
  NetworkSpec,
  NodeInfo,
  PreviewTable,
  SessionConnections,
  SnapshotSpec,
  StartSpec,
  WakeOutcome,
} from "@vivarium/contract/node";
import type { Archiving } from "./archives.ts";
import type { FakeBuild, FakeImage } from "./builds.ts";
import type { GuestRequest } from "./guest.ts";
import { FakeMachine } from "./machine.ts";
import type { Output } from "./output.ts";
import type { FakeSnapshot } from "./snapshots.ts";
import type { Stream, StreamCall } from "./streams.ts";
import type { FakeVolume } from "./volumes.ts";
import { Wakes } from "./wakes.ts";

/** Runs the node's own answer, as without the hook. */
type Proceed = () => Promise<void>;

/** A start or a snapshot in progress. */
interface UnderWay<Spec, Made> {
  spec: Spec;
  stateKey?: string | undefined;
  done: Promise<Made>;
  /** Called by a delete, which waits for completion: ends the wait for the test's hook. */
  hurry: () => void;
}

export interface FakeNodeOptions {
  /**
   * True: commands exit with 0 at once, terminals and tunnels stay silent, no traffic is counted, unless a test scripts
   * otherwise. False: commands and terminals are processes of this host.
   */
  isScripted?: boolean;
}

export class NodeState {
  /** A directory of this host for the socket, and for each machine and snapshot that has files. */
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
    builds: true,
  };

  /** How machines run that are started from now on. */
  isolation: FakeMachine["isolation"];

  /** Machines that run, are stopped, or have ended by themselves. */
  readonly machines = new Map<string, FakeMachine>();
  readonly starting = new Map<string, UnderWay<StartSpec, FakeMachine>>();
  readonly stopping = new Map<string, Promise<void>>();
  readonly snapshots = new Map<string, FakeSnapshot>();
  readonly saving = new Map<string, UnderWay<SnapshotSpec, FakeSnapshot>>();
  /** Snapshots that are being packed or unpacked. */
  readonly archiving = new Map<string, Archiving>();
  /** Folders that are being made to be packed, or as bases. */
  readonly staging = new Map<string, Promise<string>>();
  readonly volumes = new Map<string, FakeVolume>();
  readonly builds = new Map<string, FakeBuild>();
  /** Images of the registries, by their reference in full. */
  readonly images = new Map<string, FakeImage>();
  /** Networks in force, by machine id. */
  readonly networks = new Map<string, NetworkSpec>();
  /** Preview routes; `forgetPreviews` drops them. */
  previews: PreviewTable = { version: 0, routes: [] };
  /** Connections by session id, as control last sent them. A restart of the node drops them. */
  readonly connections = new Map<string, SessionConnections>();
  /** Sessions whose Connections control withdrew, as they had ended. */
  readonly endedSessions = new Set<string>();
  /** Every lease that control sent, in order. */
  readonly leases: ConnectionLease[] = [];
  /** The next network report. Unless the node is scripted, it also lists the other machines, without traffic. */
  report: NetworkReport = { counters: [], entries: [], lost: 0, cursor: "0", active_sessions: [] };
  /** How many reports were sent. */
  reportCount = 0;
  readonly wakes = new Wakes();

  /** Requested commands, in order. */
  readonly execs: (ExecCall & { machineId: string })[] = [];
  readonly guestCalls: GuestRequest[] = [];
  /** Terminals and tunnels that `accept` opened. */
  readonly streams: (StreamCall & { stream: Stream })[] = [];
  /** Files that control has written, by path. */
  readonly files = new Map<string, Buffer>();

  /** Runs before a machine starts. This hook and those below may wait, or throw a Refusal. */
  onStart: (machineId: string, spec: StartSpec) => Promise<void> | void = () => {};
  /** Runs before a stopped machine continues. */
  onContinue: (machineId: string) => Promise<void> | void = () => {};
  /** Runs before a machine is ended, also for a machine that does not exist. */
  onDelete: (machineId: string) => Promise<void> | void = () => {};
  /** Runs before a snapshot is made. */
  onSnapshot: (snapshotId: string, spec: SnapshotSpec) => Promise<void> | void = () => {};
  /** Runs before a snapshot is packed. */
  onPack: (snapshotId: string) => Promise<void> | void = () => {};
  /** Runs before an archive is unpacked. */
  onUnpack: (snapshotId: string) => Promise<void> | void = () => {};
  /** Runs before a volume is made or deleted. */
  onVolume: (volumeId: string) => Promise<void> | void = () => {};
  /** Runs at the beginning of each stage of a build; may throw a BuildFailed. */
  onBuild: (buildId: string, stage: BuildStage) => Promise<void> | void = () => {};
  /** Runs before a network is in force. */
  onNetwork: (machineId: string, spec: NetworkSpec) => Promise<void> | void = () => {};
  /** Runs before routes are in force. */
  onPreviews: (table: PreviewTable) => Promise<void> | void = () => {};
  /** Runs before a session's Connections are in force. */
  onConnections: (connections: SessionConnections) => Promise<void> | void = () => {};
  /** Runs before a lease counts. */
  onLease: (lease: ConnectionLease) => Promise<void> | void = () => {};
  /** Runs before a file of control is written; may abort the answer. */
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
    const machine = new FakeMachine({ machine_id, spec, dir: join(this.folder, machine_id) });
    return Object.assign(machine, { isolation: this.isolation });
  }

  /** Adds an orphan: a machine that no start created. */
  addMachine(machineId: string, state: "running" | "held" = "running", spec: Partial<StartSpec> = {}): void {
    const whole = { template: "base", size: "small", hostname: "stray", no_sudo: false, ...spec };
    this.machines.set(machineId, Object.assign(this.newMachine(machineId, whole), { state }));
  }

  /** Simulates a hostile guest: no copy of the machine can change identity. */
  makeUnfit(machineId: string): void {
    const machine = this.machines.get(machineId);
    if (machine) machine.isUnfit = true;
  }

  /** Simulates the death of QEMU: the machine stays listed as `ended`. */
  endMachine(machineId: string, reason: string): void {
    this.machines.get(machineId)?.end(reason);
  }

  /** Simulates a power cut: all machines are listed as ended with their host. */
  restartHost(): void {
    for (const machine of this.machines.values()) machine.end("its host restarted", "host_restart");
  }

  /** Simulates damage to the node's file of routes: the node has none afterwards. */
  forgetPreviews(): void {
    this.previews = { version: 0, routes: [] };
  }

  /** Simulates visitors of a paused session. */
  visit(wakeId: string, sessionId: string): void {
    this.wakes.visit(wakeId, sessionId);
  }
}
