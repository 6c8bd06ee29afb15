/**
 * Control → node: HTTP/1.1 over a unix socket (one machine) or mTLS TCP (fleet).
 *
 *   GET    /v1/info                              → 200 NodeInfo
 *   GET    /v1/machines                          → 200 {machines: MachineStatus[]}
 *   PUT    /v1/machines/{machine_id}  StartSpec  → 200 MachineStatus, once the machine answers and was reseeded.
 *                                                  Same id and same body again: the same answer (also while starting);
 *                                                  other body: 409 machine_conflict
 *   GET    /v1/machines/{machine_id}             → 200 MachineStatus
 *   DELETE /v1/machines/{machine_id}             → 204 when nothing of it is left; unknown id: 204
 *   POST   /v1/machines/{machine_id}/exec        → 200 exec frames (contract/guest frames.ts); dropping the connection
 *          ExecCall                                kills the command
 *   PUT    /v1/machines/{machine_id}/files?path= → 200 {bytes}; raw body
 *
 * Refusals are `{code, message}` with a status of NODE_ERRORS. A machine that ended by itself stays listed as `ended`
 * with a reason until it is deleted.
 */
import { z } from "zod";
import { LIMITS, SIZE_NAMES } from "../api/limits.ts";

/** A session's machine: `<session id>-<incarnation>`, so that an old decision never hits a newer machine. */
export const MACHINE_ID_PATTERN = /^[a-z0-9]{21}-[1-9][0-9]{0,8}$/;
export const MachineId = z.string().regex(MACHINE_ID_PATTERN);

export const StartSpec = z.object({
  /** Template and version that the node lists in NodeInfo; `base` is the default template. */
  template: z.string(),
  size: z.enum(SIZE_NAMES as [string, ...string[]]),
  hostname: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  no_sudo: z.boolean(),
});
export type StartSpec = z.infer<typeof StartSpec>;

/** Milliseconds spent per stage of a start (performance.md "Stage timings"). */
export const StartTimings = z.object({
  queue: z.int(),
  disk: z.int(),
  load: z.int(),
  handshake: z.int(),
});
export type StartTimings = z.infer<typeof StartTimings>;

export const MachineStatus = z.object({
  machine_id: z.string(),
  state: z.enum(["starting", "running", "ended"]),
  /** Why a machine ended by itself: one line that is safe to show to a user. */
  reason: z.string().optional(),
  guest_ip: z.string().optional(),
  timings: StartTimings.optional(),
});
export type MachineStatus = z.infer<typeof MachineStatus>;

export const MachineList = z.object({ machines: z.array(MachineStatus) });

export const ExecCall = z.object({
  argv: z.array(z.string()).min(1).max(LIMITS.execArgs),
  cwd: z.string().optional(),
  env: z.record(z.string(), z.string()),
  timeout_ms: z.int().min(1).max(LIMITS.execTimeoutMaxMs),
  output_limit_bytes: z.int().min(0).optional(),
});
export type ExecCall = z.infer<typeof ExecCall>;

export const NodeInfo = z.object({
  node_id: z.string(),
  version: z.string(),
  isolation: z.enum(["kvm", "emulated"]),
  qemu_version: z.string(),
  /** Whether the storage pool clones files without copying. */
  reflink: z.boolean(),
  /** Whether machines are confined by cgroup v2. */
  cgroup_v2: z.boolean(),
  disk: z.object({ free_bytes: z.int(), total_bytes: z.int() }),
  /** What can be started here. */
  baselines: z.array(z.object({ template: z.string(), size: z.string() })),
});
export type NodeInfo = z.infer<typeof NodeInfo>;
