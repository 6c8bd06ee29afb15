/**
 * Attaches the volume of a machine, which runs while its user's processes are frozen: the guest lets go of a volume that its
 * saved memory had, QEMU exchanges the medium of the spare disk, and the guest mounts what it finds there.
 */
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { NodeError } from "../node-error.ts";
import { hasSpareDisk, JAIL_PATHS } from "../qemu/arguments.ts";
import { hasMedium, insertMedium } from "../qemu/spare-disk.ts";
import { devicesOf, type Manifest } from "../snapshots/manifest.ts";
import { offerImage } from "../volumes/holders.ts";
import type { MachineDeps } from "./deps.ts";
import { machineDir } from "./journal.ts";
import type { Machine } from "./machine.ts";

/** Refuses a saved state whose machines have no disk for a volume. */
export function requireSpareDisk(manifest: Manifest): void {
  if (hasSpareDisk(devicesOf(manifest))) return;
  throw new NodeError(
    "volume_unfit",
    "it was saved by an earlier version of Vivarium, whose machines can have no volume",
  );
}

type AttachDeps = Pick<MachineDeps, "config" | "volumes" | "log">;

/** Does nothing for a machine without a volume. Again, also after a crash in the middle: the same. */
export async function attachVolume(deps: AttachDeps, machine: Machine): Promise<void> {
  const { volume } = machine.spec;
  if (!volume) return;
  const { dataDir } = deps.config;
  await deps.volumes.hold(volume.volume_id, volume.size_gb, machine.id);
  if (!(await hasMedium(machine.qmp))) {
    await machine.agent.command("/v1/volume/detach");
    const target = path.join(machineDir(dataDir, machine.id), JAIL_PATHS.volume);
    await offerImage(dataDir, volume.volume_id, { target, uid: machine.slot.uid });
    await insertMedium(machine.qmp);
    crashPoint("volume.inserted");
  }
  await mountVolume(machine);
  const { id, volumeFailure: failure } = machine;
  if (failure !== undefined) deps.log.warn({ machine: id, failure }, "a guest cannot mount its volume");
}

/** Has the guest mount the volume that its machine has, and then run its user's processes. */
export async function mountVolume(machine: Machine): Promise<void> {
  const { failure } = await machine.agent.attachVolume();
  crashPoint("volume.mounted");
  machine.volumeFailure = failure ?? undefined;
  await machine.agent.command("/v1/thaw");
}
