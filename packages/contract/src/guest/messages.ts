/**
 * Requests of the agent's HTTP/2 server. JSON bodies are snake_case; errors are `{code, message}` with a 4xx/5xx
 * status.
 *
 *   GET  /v1/health                     → 200 AgentHealth
 *   POST /v1/exec       ExecSpec        → 200 frames (frames.ts), headers sent once the command is spawned; the request
 *                                         stream reset by the host kills the command's whole process tree
 *   GET  /v1/commands                   → 200 GuestCommands
 *   PUT  /v1/files?path=P[&mode=0644]   → 200 {bytes}: raw body → temporary file → rename; parents made; owner sandbox
 *   POST /v1/freeze                     → 200 Frozen: user cgroup frozen, file systems synced, the volume unmounted unless
 *                                         some process uses it
 *   POST /v1/resumed    Resumed         → 200 ResumedAck: reseed, clock, identity, authority, then thaw (not with `stay_frozen`)
 *   POST /v1/thaw                       → 200 {}
 *   POST /v1/volume/attach              → 200 VolumeAttached: mounted at /volume and grown to its disk; again: the same
 *   POST /v1/volume/detach              → 200 {}: nothing is attached, whatever uses it; the host may exchange the disk
 *   POST /v1/power-off                  → 200 {}, then the machine ends
 *   POST /v1/unpack                     → unpack.ts; the one request of a builder besides health, and of no other machine
 *
 * Error codes of exec: `cwd_not_found`, `cwd_not_a_directory`, `invalid`. A command that is not found is no error:
 * exit 127 (126: not executable, or argument list too long) with one line on stderr.
 */
import { z } from "zod";
import { LIMITS } from "../api/limits.ts";
import type { GuestSettings } from "./settings.ts";

export const AgentHealth = z.object({
  generation: z.int(),
  version: z.string().max(64),
  uptime_ms: z.int().min(0),
  /** The kernel's clock. Absent from the answers to other requests, and from an agent older than this field. */
  clock_source: z.string().max(64).optional(),
});
export type AgentHealth = z.infer<typeof AgentHealth>;

/** One command. It runs as `sandbox`, in a cgroup leaf of its own, stdin empty, session leader. */
export const ExecSpec = z.object({
  argv: z.array(z.string()).min(1).max(LIMITS.execArgs),
  /** Absolute, or relative to /workspace; default /workspace. */
  cwd: z.string().optional(),
  /**
   * Added on top of the agent's base environment: PATH, HOME, USER, SHELL, LANG, the variables that name the certificates
   * of the session's authority, and /etc/environment.
   */
  env: z.record(z.string(), z.string()),
  timeout_ms: z.int().min(1).max(LIMITS.execTimeoutMaxMs),
  /** Output of a stream past this many bytes is read and dropped, so that the command never blocks on it. */
  output_limit_bytes: z.int().min(0).optional(),
});
export type ExecSpec = z.infer<typeof ExecSpec>;

export const ExecEnd = z.object({
  /** 0-255; 128 + signal if a signal killed it; -1 on timeout. */
  exit_code: z.int().min(-1).max(255),
  timed_out: z.boolean(),
  /** Spawn to exit, measured in the guest. */
  duration_us: z.int().min(0),
  stdout_truncated: z.boolean(),
  stderr_truncated: z.boolean(),
});
export type ExecEnd = z.infer<typeof ExecEnd>;

export const GuestCommands = z.object({
  /** Execs that began before this memory was last captured and still run, so that no caller reads their output. */
  going_on: z.int().min(0),
});

/** A certificate authority for the stores of the guest. Public: its key is never in the guest. */
export const GuestAuthority = z.object({
  certificate_pem: z.string().max(8_192),
  /** Name of the certificate in a directory of hashed certificates, without `.0`: 8 hex digits (`openssl x509 -subject_hash`). */
  subject_hash: z.string().regex(/^[0-9a-f]{8}$/),
});
export type GuestAuthority = z.infer<typeof GuestAuthority>;

export const Frozen = z.object({
  /** Whether the disk has everything that was written before. Absent from an agent older than this field. */
  flushed: z.boolean().optional(),
});
export type Frozen = z.infer<typeof Frozen>;

/** Sent to a machine after its memory was loaded, before its user processes run. */
export interface Resumed {
  /** 64 bytes of host randomness, base64. */
  entropy: string;
  /** Wall clock to set, nanoseconds since 1970 as a decimal string. */
  wall_clock_ns: string;
  /** Present if the machine is a new session, absent on a plain resume. */
  identity?: {
    hostname: string;
    /** 32 lower-case hex characters. */
    machine_id: string;
    no_sudo: boolean;
    /**
     * The operator's settings, in place of those that the saved state has. Absent: these stay. An agent older than this
     * field ignores it.
     */
    settings?: GuestSettings;
  };
  /**
   * The user's processes stay frozen until a later call. An agent older than this field thaws them, so they run for a
   * moment until its machine is stopped.
   */
  stay_frozen?: boolean;
  /**
   * The authority that the guest trusts from now on: it is in the guest's bundle of certificates before its processes run,
   * and new processes have the variables that name the bundle. null: none, and an earlier one is removed. Absent: as it is.
   */
  ca?: GuestAuthority | null;
}
export const ResumedAck = z.object({
  reseeded: z.literal(true),
  /** Value of the counter in the guest's /run/vivarium/generation after this call. */
  generation: z.int().min(1),
  /**
   * Whether the guest trusts the authority of the request. `false` only without `identity`: root in the guest has made its files
   * unwritable. Absent from an agent older than Connections.
   */
  ca_trusted: z.boolean().optional(),
  /** The answer of GET /v1/health, which saves a second request to a new machine. */
  health: AgentHealth,
});
export type ResumedAck = z.infer<typeof ResumedAck>;

export const VolumeAttached = z.object({
  mounted: z.boolean(),
  /** Why the volume is not mounted. In its place is a read-only directory that says so. */
  failure: z.string().max(1024).nullable(),
});
export type VolumeAttached = z.infer<typeof VolumeAttached>;

export const AgentError = z.object({ code: z.string().max(64), message: z.string().max(1024) });
