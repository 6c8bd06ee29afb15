import { createRequire } from "node:module";
import type { NodeInfo } from "@vivarium/contract/node";
import { hasReflink } from "../disks/clone.ts";
import { diskSpace } from "../disks/gate.ts";
import { hasCgroupV2 } from "../host/cgroup.ts";
import type { MachineDeps } from "../machines/deps.ts";
import { machinesDir } from "../machines/journal.ts";
import { DISK_PER_START_BYTES } from "../machines/start.ts";

const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };

/** Facts about this node and the machines that it can start, for control's placement and health check. */
export async function nodeInfo(deps: MachineDeps): Promise<NodeInfo> {
  const baselines = deps.baselines.all;
  const dir = machinesDir(deps.config.dataDir);
  return {
    node_id: deps.config.nodeId,
    version,
    // Never "kvm" if any baseline runs emulated.
    isolation:
      baselines.length > 0 && baselines.every(({ manifest }) => manifest.accelerator === "kvm")
        ? "kvm"
        : "emulated",
    qemu_version: deps.qemu.version,
    reflink: await hasReflink(dir),
    cgroup_v2: hasCgroupV2(),
    disk: await diskSpace(dir),
    has_disk_room: await deps.gate.hasSpace(DISK_PER_START_BYTES),
    baselines: baselines.map(({ manifest: { template, size, version, created_at }, isVerified, origin }) => ({
      template,
      size,
      version,
      created_at,
      is_current: isVerified,
      origin,
    })),
    warm: deps.pool.counts,
    new_machines: deps.pool.starts,
    damaged_snapshots: deps.snapshots.damaged,
    previews_version: deps.network.previews.version,
    gateway: deps.network.link.isConnected,
  };
}
