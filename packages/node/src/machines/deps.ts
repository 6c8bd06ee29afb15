/** The parts of the daemon that operations on machines use. Each operation names those that it needs. */
import type { Log } from "@vivarium/kit/log";
import type { NodeConfig } from "../config.ts";
import type { DiskGate } from "../disks/gate.ts";
import type { Cgroups } from "../host/cgroup.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import type { NamespacePool } from "../network/namespace-pool.ts";
import type { NodeNetwork } from "../network/node-network.ts";
import type { Baselines } from "../snapshots/baselines.ts";
import type { SumsThread } from "../snapshots/sums-thread.ts";
import type { SnapshotTable } from "../snapshots/table.ts";
import type { Verifications } from "../snapshots/verify-together.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { GuestSettingsFile } from "./guest-settings.ts";
import type { MachineTable } from "./table.ts";
import type { WarmPool } from "./warm-pool.ts";

export interface MachineDeps {
  config: NodeConfig;
  qemu: QemuRoot;
  cgroups: Cgroups;
  baselines: Baselines;
  sums: SumsThread;
  snapshots: SnapshotTable;
  verifications: Verifications;
  pool: WarmPool;
  namespaces: NamespacePool;
  network: NodeNetwork;
  gate: DiskGate;
  guestSettings: GuestSettingsFile;
  volumes: Volumes;
  table: MachineTable;
  log: Log;
}
