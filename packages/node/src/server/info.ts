import { createRequire } from "node:module";
import type { NodeInfo } from "@vivarium/contract/node";
import { hasReflink } from "../disks/clone.ts";
import { diskSpace } from "../disks/gate.ts";
import type { MachineDeps } from "../machines/deps.ts";
import { machinesDir } from "../machines/journal.ts";
import { DISK_PER_START_BYTES } from "../machines/start.ts";
import { hasBuilderKernel } from "../snapshots/kernel-binds.ts";
import { isolationOf } from "../snapshots/manifest.ts";

const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };

/** Never `kvm` if anything here runs emulated, or would. A machine counts, because what is saved of it would. */
export function summarize(
  all: readonly ("kvm" | "emulated")[],
): Pick<NodeInfo, "isolation" | "emulated_states"> {
  const emulated = all.filter((one) => one === "emulated").length;
  if (emulated === all.length) return { isolation: "emulated" };
  return emulated === 0 ? { isolation: "kvm" } : { isolation: "mixed", emulated_states: emulated };
}

/** Facts about this node and the machines that it can start, for control's placement and health check. */
export async function nodeInfo(deps: MachineDeps): Promise<NodeInfo> {
  void deps.baselines.notice();
  const baselines = deps.baselines.all;
  const dir = machinesDir(deps.config.dataDir);
  return {
    node_id: deps.config.nodeId,
    version,
    ...summarize([
      ...baselines.map(({ manifest }) => isolationOf(manifest)),
      ...(await deps.baselines.builtIsolation()),
      ...(await deps.snapshots.isolation()),
      ...deps.table.list().flatMap((machine) => machine.isolation ?? []),
    ]),
    qemu_version: deps.qemu.version,
    reflink: await hasReflink(dir),
    cgroup_v2: deps.cgroups.lack === undefined,
    cgroup_lack: deps.cgroups.lack,
    limits_refused: deps.cgroups.refusal !== undefined,
    disk: await diskSpace(dir),
    has_disk_room: await deps.gate.hasSpace(DISK_PER_START_BYTES),
    baselines: baselines.map(({ manifest: { template, size, version, created_at }, isCurrent, origin }) => ({
      template,
      size,
      version,
      created_at,
      is_current: isCurrent,
      origin,
    })),
    warm: deps.pool.counts,
    new_machines: deps.pool.starts,
    damaged_snapshots: deps.snapshots.damaged,
    previews_version: deps.network.previews.version,
    gateway: deps.network.link.isConnected,
    builds: hasBuilderKernel(deps.config.imagesDir),
  };
}
