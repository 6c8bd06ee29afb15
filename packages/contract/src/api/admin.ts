/** The routes of the installation, for its operator alone (docs/spec/access.md). */
import { z } from "zod";
import { closed, named } from "./wire-types.ts";

/** Body of `POST /v1/admin/keys/rotate`, which takes nothing: the service chooses the key. */
export const KekRotation = closed("KekRotation", {});

/** Answer of `GET` and `POST /v1/admin/keys/rotate`. */
export const KekStatus = named("KekStatus", {
  /** The key-encryption key that seals; absent if the service has none. */
  current: z.string().optional(),
  keys: z.array(
    z.object({
      id: z.string(),
      is_loaded: z.boolean(),
      /** Sessions, checkpoints and others whose data key it wraps: it is needed until there are none. */
      data_keys: z.int(),
    }),
  ),
  /** Sessions and checkpoints whose variables are not sealed. */
  unsealed: z.int(),
});
export type KekStatus = z.infer<typeof KekStatus>;
