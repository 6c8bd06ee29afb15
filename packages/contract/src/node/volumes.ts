/**
 * Calls of control about volumes, the disks that outlive machines:
 *
 *   GET    /v1/volumes                      → 200 {volumes: VolumeStatus[]}
 *   PUT    /v1/volumes/{volume_id}          → 200 VolumeStatus, once the volume is durable. An existing one of at least this
 *          VolumeSpec                         size: the same answer. A smaller one grows, at its next attach
 *   DELETE /v1/volumes/{volume_id}          → 204; unknown id: 204; volume_held while a machine has it
 *
 * A machine whose StartSpec names a volume has it from the moment in which it runs, at a start or at a `continue`, until it is
 * deleted. Nothing of the volume is in a snapshot. A volume has one machine at a time, and what its guest has
 * acknowledged is on disk once the machine is deleted.
 */
import { z } from "zod";

export const VolumeId = z.string().regex(/^vol_[a-z0-9]{21}$/);

export const VolumeSpec = z.object({ size_gb: z.int().min(1).max(16_384) });
export type VolumeSpec = z.infer<typeof VolumeSpec>;

/** The volume of a StartSpec. One that is smaller than `size_gb` grows before it is attached. */
export const AttachedVolume = VolumeSpec.extend({ volume_id: VolumeId });
export type AttachedVolume = z.infer<typeof AttachedVolume>;

export const VolumeStatus = z.object({
  volume_id: z.string(),
  size_gb: z.int(),
  /** Bytes that it takes on the node's disk. */
  bytes: z.int(),
  /** The machine that has it. */
  machine_id: z.string().optional(),
});
export type VolumeStatus = z.infer<typeof VolumeStatus>;

export const VolumeList = z.object({ volumes: z.array(VolumeStatus) });
