/** Creates, records and lists of sessions (docs/spec/sessions.md). */
import { z } from "zod";
import { ArtifactsOfCreate } from "./artifacts.ts";
import { ConnectionCreate, ConnectionStatus } from "./connections.ts";
import { EGRESS_MODES, EgressPolicy } from "./egress.ts";
import { LIMITS, SIZE_NAMES } from "./limits.ts";
import { ExposedPreview } from "./previews.ts";
import { END_REASONS, WIRE_STATES } from "./states.ts";
import {
  durationMs,
  labels,
  named,
  page,
  plainText,
  text,
  timestamp,
  variables,
  wholeNumber,
} from "./wire-types.ts";

export const PTY_DETACH_POLICIES = ["pause", "keep_live", "destroy"] as const;
export type PtyDetachPolicy = (typeof PTY_DETACH_POLICIES)[number];
export const COMMAND_CAPTURES = ["hash", "executable", "full"] as const;

/** Body of `POST /v1/sessions` (docs/spec/sessions.md). Unknown fields are ignored. */
export const SessionCreate = named("SessionCreate", {
  size: z.enum(SIZE_NAMES as [string, ...string[]]).nullish(),
  volume_id: text().nullish(),
  max_lifetime_ms: durationMs(LIMITS.maxLifetimeMs),
  idle_timeout_ms: durationMs(LIMITS.idleTimeoutMs),
  paused_ttl_ms: wholeNumber(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
    .nullish()
    .transform((value) => value || undefined),
  name: plainText(1, LIMITS.nameChars).nullish(),
  labels: labels.nullish(),
  external_id: plainText(0, LIMITS.externalIdChars).nullish(),
  template: text().nullish(),
  from_checkpoint: text().nullish(),
  egress: EgressPolicy.optional(),
  no_sudo: z.boolean().optional(),
  on_pty_detach: z.enum(PTY_DETACH_POLICIES).nullish(),
  on_detach: z.enum(PTY_DETACH_POLICIES).nullish(),
  destroy_on_completion: z.boolean().nullish(),
  artifacts: ArtifactsOfCreate.optional(),
  project_id: text().nullish(),
  command_capture: z.enum(COMMAND_CAPTURES).nullish(),
  env: variables.nullish(),
  secrets: variables.nullish(),
  connections: z
    .array(ConnectionCreate)
    .max(LIMITS.connectionsPerSession, `must hold at most ${LIMITS.connectionsPerSession} Connections`)
    .optional(),
  egress_cap_bytes: wholeNumber(0, Number.MAX_SAFE_INTEGER).nullish(),
  wake_on_http: z.boolean().nullish(),
});
export type SessionCreate = z.input<typeof SessionCreate>;
export type ParsedSessionCreate = z.output<typeof SessionCreate>;

/** Duration of each stage of a create, in milliseconds, which the caller gets on request. */
export const CreateTiming = named("CreateTiming", {
  place: z.int().meta({ description: "until the node was asked for a machine" }),
  queue: z.int().optional().meta({ description: "until the node had capacity for it" }),
  disk: z.int().optional().meta({ description: "making its disk" }),
  load: z.int().optional().meta({ description: "starting it and loading the baseline" }),
  handshake: z.int().optional().meta({ description: "until its agent had the new identity" }),
  total: z.int().meta({ description: "from the request to live" }),
});
export type CreateTiming = z.infer<typeof CreateTiming>;

/** Storage of a paused session's state. hot: ready to load; warm: must be unpacked first; cold: must be fetched. */
export const SNAPSHOT_TIERS = ["hot", "warm", "cold"] as const;
export const ARCHIVE_STATUSES = ["pending", "complete", "failed", "unavailable"] as const;

/** The upload of a paused session's state to durable storage. */
export const Archive = named("Archive", {
  status: z.enum(ARCHIVE_STATUSES),
  uploaded_at: timestamp.optional(),
  detail: z.string().optional(),
});
export type Archive = z.infer<typeof Archive>;

/** The session record (docs/spec/sessions.md). Unset optional fields are omitted, never null. */
export const SessionRecord = named("Session", {
  session_id: z.string(),
  state: z.enum(WIRE_STATES),
  created_at: timestamp,
  last_active_at: timestamp,
  size: z.string(),
  vcpus: z.int(),
  mem_mb: z.int(),
  no_sudo: z.boolean().optional(),
  on_pty_detach: z.enum(PTY_DETACH_POLICIES).optional(),
  paused_ttl_ms: z.int().optional(),
  egress: z.object({ mode: z.enum(EGRESS_MODES), allow: z.array(z.string()) }).optional(),
  wake_on_http: z.boolean().optional(),
  name: z.string().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  external_id: z.string().optional(),
  volume_id: z.string().optional(),
  idle_timeout_ms: z.int().optional(),
  max_lifetime_ms: z.int().optional(),
  project_id: z.string().optional(),
  destroy_on_completion: z.boolean().optional(),
  template: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
  /** Names of the secrets, sorted; never their values. */
  secret_names: z.array(z.string()).optional(),
  connections: z.array(ConnectionStatus).optional(),
  status_detail: z.string().optional(),
  status_reason: z.string().optional(),
  active_since: timestamp.optional(),
  max_active_window_ms: z.int().optional(),
  paused_at: timestamp.optional(),
  resumed_at: timestamp.optional(),
  wake_at: timestamp.optional(),
  snapshot_tier: z.enum(SNAPSHOT_TIERS).optional(),
  archive: Archive.optional(),
  guest_ip: z.string().optional(),
  /** How the session's machine runs, or will run when it is woken. */
  isolation: z.enum(["kvm", "emulated"]).optional(),
  exposed_ports: z.array(z.int()).optional(),
  exposed_previews: z.array(ExposedPreview).optional(),
  parent_session_id: z.string().optional(),
  /** The checkpoint that this session was started from; it may have been deleted since. */
  from_checkpoint: z.string().optional(),
  ended_at: timestamp.optional(),
  end_reason: z.enum(END_REASONS).optional(),
  timing: CreateTiming.optional(),
});
export type SessionRecord = z.infer<typeof SessionRecord>;

export const SessionList = page("SessionList", { sessions: z.array(SessionRecord) });
export type SessionList = z.infer<typeof SessionList>;
