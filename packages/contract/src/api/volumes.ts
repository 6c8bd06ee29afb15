/** Volumes, the disks that outlive sessions (docs/spec/volumes.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { named, timestamp, wholeNumber } from "./wire-types.ts";

/** The operator's own bound may be lower. */
const sizeGb = wholeNumber(1, LIMITS.volumeGbHard);

/** Body of `POST /v1/volumes`. Unknown fields are ignored. */
export const VolumeCreate = named("VolumeCreate", { size_gb: sizeGb.nullish() });
export type VolumeCreate = z.input<typeof VolumeCreate>;

/** Body of `PATCH /v1/volumes/{id}`. */
export const VolumePatch = named("VolumePatch", { size_gb: sizeGb });
export type VolumePatch = z.input<typeof VolumePatch>;

export const Volume = named("Volume", {
  id: z.string(),
  size_gb: z.int(),
  created_at: timestamp,
  attached: z.boolean(),
  /** The session that has it. */
  session_id: z.string().optional(),
  /** Absent until a session has given it back, or was paused with it. */
  last_saved_at: timestamp.optional(),
});
export type Volume = z.infer<typeof Volume>;

export const VolumeList = named("VolumeList", { volumes: z.array(Volume) });
export type VolumeList = z.infer<typeof VolumeList>;
