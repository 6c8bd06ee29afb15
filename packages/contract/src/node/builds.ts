/**
 * Calls of control about builds, which make templates of container images:
 *
 *   GET    /v1/builds                      → 200 {builds: BuildStatus[]}
 *   PUT    /v1/builds/{build_id} BuildSpec → 200 BuildStatus, at once. Same id and same body again: the status that it has,
 *                                            and a build that has failed begins again with what is left of it; other
 *                                            body: build_conflict
 *   GET    /v1/builds/{build_id}           → 200 BuildStatus
 *   GET    /v1/builds/{build_id}/log       → 200 BuildLog
 *   DELETE /v1/builds/{build_id}           → 204 once nothing works for it any more; unknown id: 204. Machines and snapshots
 *                                            that were started from it continue
 *
 * One build runs at a time, and the others wait in the order of their PUT. A build that is ready is a template of its id: a
 * StartSpec may name it, in the sizes of its status. NodeInfo does not list it.
 *
 * The credential of a BuildSpec is kept in memory alone, and sent to its registry and that one's token service alone. Two
 * bodies that differ in it or in `image` alone are the same. A daemon that has restarted has none, so its builds that were not ready
 * have failed with `interrupted` until they are put again. A node that cannot build says so by `builds` of NodeInfo.
 *
 * With `layout` the image is not pulled, but read out of a machine of this node, as an OCI layout that something in it has
 * written. Nothing in there is believed, and no link is followed. The machine is, like the credential, no part of what a body is
 * compared by: a session that was paused meanwhile has another one. While it is away, or held, the build fails for a
 * reason that passes.
 */
import { z } from "zod";
import { SIZE_NAMES } from "../api/limits.ts";
import { MachineId } from "./calls.ts";

/** Chosen by control and never reused. */
export const BuildId = z.string().regex(/^tpl_[a-z0-9]{21}$/);

const RegistryLogin = z.object({
  /** The one name of the registry, as in the reference: `docker.io`, `registry.example.com:5000`. */
  registry: z.string().min(1).max(300),
  username: z.string().min(1),
  password: z.string().min(1),
});

export const BuildSpec = z.object({
  /** The image in full: registry, path, and tag or digest. Of a layout, the name that its records show. */
  reference: z.string().min(1).max(1_500),
  /** Directory of an OCI layout below /workspace of `machine_id`. */
  layout: z.string().min(1).max(4_096).optional(),
  machine_id: MachineId.optional(),
  /** Sizes in which a machine can be started from it once it is ready. */
  sizes: z.array(z.enum(SIZE_NAMES as [string, ...string[]])).min(1),
  credential: RegistryLogin.optional(),
  /**
   * The reference with the digest to which an earlier attempt resolved it, as BuildStatus had it: this is pulled, so that a tag
   * that has moved meanwhile changes nothing.
   */
  image: z.string().min(1).max(1_500).optional(),
});
export type BuildSpec = z.infer<typeof BuildSpec>;

/**
 * - `pull`: fetches the image, or reads it out of a machine
 * - `unpack`: unpacks its layers, in a machine without a network
 * - `hash`: digests the disk
 * - `bake`: boots the machines that later ones continue, one for each size
 */
export const BUILD_STAGES = ["pull", "unpack", "hash", "bake"] as const;
export type BuildStage = (typeof BUILD_STAGES)[number];

/**
 * `rate_limited`: the registry wants less, and may have said for how long; `interrupted`: the daemon ended. Neither says
 * anything of the image.
 */
export const BUILD_FAILURES = [
  "registry_auth",
  "image_not_found",
  "image_invalid",
  "image_too_large",
  "build_timeout",
  "rate_limited",
  "interrupted",
  "internal",
] as const;
export type BuildFailureWord = (typeof BUILD_FAILURES)[number];

export const BuildFailure = z.object({
  word: z.enum(BUILD_FAILURES),
  /** One line that is safe to show to a user. */
  message: z.string(),
  /** Whether the same build may succeed later. */
  is_transient: z.boolean(),
  retry_after_ms: z.int().optional(),
});
export type BuildFailure = z.infer<typeof BuildFailure>;

const Count = z.object({ done: z.int(), total: z.int() });

export const BuildStatus = z.object({
  build_id: z.string(),
  state: z.enum(["queued", "building", "ready", "failed"]),
  /** 1: the next one. Present while it is queued. */
  place: z.int().min(1).optional(),
  /** The stage that runs, or in which it failed. */
  stage: z.enum(BUILD_STAGES).optional(),
  /** How far the stage is, where it can be counted. */
  progress: z.object({ layers: Count, bytes: Count }).optional(),
  /** The image, once it is known which one the reference means, before its layers are fetched. Later attempts pull the same. */
  image: z
    .object({
      /** The reference with the digest to which it was resolved. */
      reference: z.string(),
      manifest_digest: z.string(),
    })
    .optional(),
  /** SHA-256 of the disk, in hexadecimal digits. Present once it is ready. */
  disk_sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  /** Sizes that can be started. */
  sizes: z.array(z.string()).optional(),
  /** Present once it has failed. */
  failure: BuildFailure.optional(),
});
export type BuildStatus = z.infer<typeof BuildStatus>;

export const BuildList = z.object({ builds: z.array(BuildStatus) });

/** The newest lines, oldest first. No line has a credential or a signed address. */
export const BuildLog = z.object({
  lines: z.array(z.object({ at: z.string(), text: z.string() })).max(1_000),
});
export type BuildLog = z.infer<typeof BuildLog>;
