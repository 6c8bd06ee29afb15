/**
 * Calls of control to a node, HTTP/1.1 over a unix socket. A node never closes an idle connection, which could race
 * with a request on its way.
 *
 *   GET    /v1/info                               → 200 NodeInfo
 *   GET    /v1/machines                           → 200 {machines: MachineStatus[]}
 *   PUT    /v1/machines/{machine_id}  StartSpec   → 200 MachineStatus, once the machine answers and was reseeded; with
 *                                                   `hold` it is stopped again by then. Same id and same body again:
 *                                                   the same answer (also while starting); other body: 409
 *   GET    /v1/machines/{machine_id}              → 200 MachineStatus
 *   DELETE /v1/machines/{machine_id}              → 204 when nothing of it is left; unknown id: 204
 *   POST   /v1/machines/{machine_id}/continue     → 200 MachineStatus: a held machine continues, reseeded; a running
 *                                                   one: the same answer
 *   POST   /v1/machines/{machine_id}/exec         → 200 exec frames (contract/guest frames.ts); dropping the connection
 *          ExecCall                                 kills the command
 *   PUT    /v1/machines/{machine_id}/files?path=  → 200 {bytes}; raw body, for the service's own files
 *
 *   *      /v1/machines/{machine_id}/guest/files… → as in contract/guest files.ts, bodies passed on unchanged, with
 *          /v1/machines/{machine_id}/guest/         the limits of what an agent may answer; refusals of the agent come as
 *          processes…                               those of the node, with the codes of GUEST_ERRORS. An upload's answer
 *                                                   is UploadWritten
 *   GET    /v1/machines/{machine_id}/terminals    → 101: `Connection: Upgrade`, `Upgrade: vivarium-stream`, then both ways
 *          /v1/machines/{machine_id}/tunnel         raw bytes. The first message of each side is 4 bytes length
 *                                                   (big-endian) and JSON (opening.ts): the caller's is a TerminalSpec on
 *                                                   `/terminals` and a TunnelSpec on `/tunnel`, the node's `{}` or a
 *                                                   refusal `{code, message}`. Then frames of a terminal (contract/guest
 *                                                   terminals.ts) or raw bytes of a tunnel. The end of either side ends both
 *
 *   GET    /v1/snapshots                          → 200 {snapshots: SnapshotStatus[]}
 *   PUT    /v1/snapshots/{snapshot_id} Snapshot-  → 200 SnapshotStatus, once it is durable. Same id and same body again:
 *          Spec                                     the same answer (also while it is made); other body: 409
 *   GET    /v1/snapshots/{snapshot_id}            → 200 SnapshotStatus; snapshot_damaged if it is known to be damaged;
 *                                                   the list omits it then
 *   DELETE /v1/snapshots/{snapshot_id}            → 204; unknown id: 204. Machines that were loaded from it continue
 *
 * A machine that is started from a snapshot without memory boots from its disk. It trusts no authority of the machine that was
 * saved, and cannot continue as that machine (`resume`: 400).
 *
 * `PUT /v1/machines/{machine_id}` and `PUT /v1/snapshots/{snapshot_id}` take a state key in the header STATE_KEY_HEADER.
 * A machine that is started with one is sealed, and so are its snapshots: its disk is encrypted, and its memory and
 * device state are when they are saved. Every later call of the two that concerns the machine or such a snapshot needs the
 * same key, or is refused with wrong_state_key. It is in no body, because a node keeps bodies, and never the key.
 *
 * Refusals are `{code, message}` with a status of NODE_ERRORS. A machine that ended by itself stays listed as `ended`
 * with a reason until it is deleted.
 */
import { z } from "zod";
import { PauseTiming } from "../api/lifecycle.ts";
import { SIZE_NAMES } from "../api/limits.ts";
import { ReadyMachines } from "../api/service.ts";
import { CreateTiming } from "../api/sessions.ts";
import { TemplateOrigin } from "../api/templates.ts";
import { FileWritten } from "../guest/files.ts";
import { GuestAuthority } from "../guest/messages.ts";
import { NetworkSpec } from "./network.ts";
import { AttachedVolume } from "./volumes.ts";

/** A session's machine: `<session id>-<incarnation>`, so that an old decision never hits a newer machine. */
export const MACHINE_ID_PATTERN = /^[a-z0-9]{21}-[1-9][0-9]{0,8}$/;
export const MachineId = z.string().regex(MACHINE_ID_PATTERN);

/** Name of a saved state, chosen by control and never reused. */
export const SNAPSHOT_ID_PATTERN = /^[a-z]{3}_[a-z0-9]{21}$/;
export const SnapshotId = z.string().regex(SNAPSHOT_ID_PATTERN);

export const STATE_KEY_HEADER = "vivarium-state-key";
/** 32 random bytes, base64url. */
export const StateKeyText = z.string().regex(/^[A-Za-z0-9_-]{43}$/);

export const StartSpec = z.object({
  /** Template and version that the node lists in NodeInfo, or the id of a build; `base` is the default template. */
  template: z.string(),
  size: z.enum(SIZE_NAMES as [string, ...string[]]),
  hostname: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  no_sudo: z.boolean(),
  /** The snapshot to load instead of the template's baseline. Its size must be `size`. */
  snapshot_id: SnapshotId.optional(),
  /** Whether the machine continues as the one that was saved and keeps its identity. Otherwise it gets its own. */
  resume: z.boolean().optional(),
  /**
   * Whether to stop the machine again once it is loaded and reseeded, which proves that it can continue. Its user's
   * processes run only after `continue`.
   */
  hold: z.boolean().optional(),
  /** The network policy, in force before the guest runs. Absent: full public egress, nothing exposed. */
  network: NetworkSpec.optional(),
  /** The authority that the guest trusts. Absent: none, and one that its saved state trusted is removed. */
  ca: GuestAuthority.optional(),
  /** The volume that is mounted in the guest before its user's processes run. With `hold`: at the `continue`. */
  volume: AttachedVolume.optional(),
});
export type StartSpec = z.infer<typeof StartSpec>;

/** Milliseconds per stage of a start. */
export const StartTimings = CreateTiming.omit({ place: true, total: true }).required();
export type StartTimings = z.infer<typeof StartTimings>;

export const MachineStatus = z.object({
  machine_id: z.string(),
  /** `held`: loaded or captured, and stopped until it is continued or deleted. */
  state: z.enum(["starting", "running", "held", "ended"]),
  /** Why a machine ended by itself: one line that is safe to show to a user. */
  reason: z.string().optional(),
  /** `host_restart`: the host went down under the machine. */
  cause: z.enum(["host_restart"]).optional(),
  guest_ip: z.string().optional(),
  isolation: z.enum(["kvm", "emulated"]).optional(),
  timings: StartTimings.optional(),
  /** Why the guest cannot mount its volume: what is on it is not the file system that it got. */
  volume_failure: z.string().optional(),
  /** The generation of the network in its StartSpec. */
  network_generation: z.int().optional(),
});
export type MachineStatus = z.infer<typeof MachineStatus>;

export const MachineList = z.object({ machines: z.array(MachineStatus) });

/**
 * Absent: memory and processes are saved with the disk. `false`: the disk alone is, as of an instant at which the guest had
 * written everything to it. A machine that is started from it boots.
 */
const WithMemory = z.literal(false).optional();

/** The source of a snapshot: a running machine, or another snapshot, whose files are shared, not copied. */
export const SnapshotSpec = z.union([
  z
    .object({
      machine_id: MachineId,
      /**
       * Whether the machine continues at once or stays stopped (`hold`) once its state is durable. A held machine can be
       * continued later; its snapshot then is an earlier state. If the capture fails, the machine continues in any case.
       */
      after: z.enum(["continue", "hold"]),
      memory: WithMemory,
    })
    // A machine that stays stopped may be deleted, and then its memory would be lost.
    .refine(({ after, memory }) => after === "continue" || memory === undefined, {
      message: "memory: false goes with after: continue alone",
    }),
  z.object({ snapshot_id: SnapshotId, memory: WithMemory }),
]);
export type SnapshotSpec = z.infer<typeof SnapshotSpec>;

/** Milliseconds per stage of a capture. */
export const CaptureTimings = PauseTiming.omit({ total: true });
export type CaptureTimings = z.infer<typeof CaptureTimings>;

export const SnapshotStatus = z.object({
  snapshot_id: z.string(),
  state: z.enum(["saving", "ready"]),
  template: z.string(),
  size: z.string(),
  /** Bytes that this snapshot alone takes: changed pages, device state, disk layer. */
  bytes: z.int(),
  created_at: z.string(),
  timings: CaptureTimings.optional(),
  /** The machine that was captured with `after: "hold"`. */
  machine_id: z.string().optional(),
  /** `false`: it has no memory. Absent from a node that is older than such snapshots, whatever was asked for. */
  memory: z.literal(false).optional(),
  /** Whether it is sealed with a session's state key. */
  sealed: z.literal(true).optional(),
  /** When a machine was last started from it, or it was made or unpacked here. */
  used_at: z.string().optional(),
  /** The baseline that it was made from, directly or through other snapshots, if that is on this node (archives.ts). */
  baseline_id: SnapshotId.optional(),
});
export type SnapshotStatus = z.infer<typeof SnapshotStatus>;

export const SnapshotList = z.object({ snapshots: z.array(SnapshotStatus) });

/** Bodies that the node checks and passes on to the agent. */
export { ExecSpec as ExecCall } from "../guest/messages.ts";
export { TerminalSpec, TunnelSpec } from "../guest/terminals.ts";

/** Answer to an upload. `sha256` is of the bytes that the agent was sent, computed outside the guest. */
export const UploadWritten = FileWritten.extend({ sha256: z.string().regex(/^[0-9a-f]{64}$/) });
export type UploadWritten = z.infer<typeof UploadWritten>;

export const NodeInfo = z.object({
  node_id: z.string(),
  version: z.string(),
  /** How the machines run that are started here from baselines and snapshots: `mixed` if only some have KVM. */
  isolation: z.enum(["kvm", "emulated", "mixed"]),
  /** With `mixed`: the baselines and snapshots that would be emulated. */
  emulated_states: z.int().optional(),
  qemu_version: z.string(),
  /** Whether the storage pool clones files without copying. */
  reflink: z.boolean(),
  /** Whether machines are confined by cgroup v2. */
  cgroup_v2: z.boolean(),
  /** Limits that machines are without, and why. */
  cgroup_lack: z.string().optional(),
  /** Whether no machine starts, since its limits cannot be set although the host has them. Each start tries again. */
  limits_refused: z.boolean().optional(),
  disk: z.object({ free_bytes: z.int(), total_bytes: z.int() }),
  /** Whether the disk gate would admit another machine. Absent: unknown until a start is tried. */
  has_disk_room: z.boolean().optional(),
  /** Baselines that can be started here, the current version of each template first. */
  baselines: z.array(
    z.object({
      template: z.string(),
      size: z.string(),
      /** The version, which a StartSpec can request as `<template>@<version>`. */
      version: z.string().optional(),
      created_at: z.string().optional(),
      /** Whether a StartSpec without a version gets this one. */
      is_current: z.boolean().optional(),
      /** The origin of this version of the template. */
      origin: TemplateOrigin.optional(),
    }),
  ),
  /** Whether images can be built here (builds.ts). Absent: no. */
  builds: z.boolean().optional(),
  /** Machines loaded ahead: of a template in a size, or of a snapshot that is started from often. */
  warm: z.array(ReadyMachines.extend({ snapshot_id: z.string().optional() })).optional(),
  /**
   * Requests for a machine that is neither woken nor held, since this daemon started: `from_pool` got a warm machine,
   * `loaded` found none ready.
   */
  new_machines: z.object({ from_pool: z.int(), loaded: z.int() }).optional(),
  /** Snapshots that were found damaged. A request for one by name is refused with `snapshot_damaged`. */
  damaged_snapshots: z.array(z.string()).optional(),
  /** Version of the node's PreviewTable; 0: none. */
  previews_version: z.int().optional(),
  /** Whether a gateway is connected. */
  gateway: z.boolean().optional(),
});
export type NodeInfo = z.infer<typeof NodeInfo>;
