/** The parts of the daemon that builds use. */
import type { Log } from "@vivarium/kit/log";
import type { Dial } from "@vivarium/oci/dial";
import type { NodeConfig } from "../config.ts";
import type { DiskGate } from "../disks/gate.ts";
import type { AgentClient } from "../guest/client.ts";
import type { Cgroups } from "../host/cgroup.ts";
import type { QemuRoot } from "../host/qemu-root.ts";
import type { Accelerator } from "../qemu/cpu-model.ts";

export interface BuildDeps {
  config: Pick<NodeConfig, "dataDir" | "imagesDir" | "cpuModel" | "maxMachines">;
  qemu: QemuRoot;
  cgroups: Cgroups;
  gate: Pick<DiskGate, "reserve">;
  accelerators: Accelerator[];
  /** Ends a warm machine to free its memory. False if none is left. */
  giveUpOne: () => Promise<boolean>;
  /** The agent of a machine that runs. Throws NodeError for any other. */
  agentOf: (machineId: string) => AgentClient;
  /** Connects to registries. */
  dial: Dial;
  log: Log;
}
