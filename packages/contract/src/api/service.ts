/** Error bodies, health, the caller's organisation and the caller's identity (docs/spec/service.md). */
import { z } from "zod";
import { KEY_ROLES } from "./keys.ts";
import { CAPABILITIES } from "./tokens.ts";
import { named, timestamp } from "./wire-types.ts";

/** Body of every non-2xx answer (docs/spec/errors.md): these two fields and no other. */
export const ErrorBody = named("Error", { error: z.string(), code: z.string() });
export type ErrorBody = z.infer<typeof ErrorBody>;

/** Result of one check of `GET /v1/healthz`. */
export const CheckResult = z.enum(["ok", "warn", "fail", "off"]);
export type CheckResult = z.infer<typeof CheckResult>;

export const Health = named("Health", {
  status: z.enum(["ok", "degraded"]),
  version: z.string(),
  /** `kvm`: no saved state would be continued emulated. `mixed`: some would, and `emulated_states` counts them. */
  isolation: z.enum(["kvm", "emulated", "mixed"]),
  emulated_states: z.int().optional(),
  checks: z.object({
    store: CheckResult,
    runtime: CheckResult,
    images: CheckResult,
    disk: CheckResult,
    secrets_key: CheckResult,
    cold_tier: CheckResult,
  }),
});
export type Health = z.infer<typeof Health>;

/** Warm machines of one template and size. `wanted`: how many are worth having, by recent demand. */
export const ReadyMachines = z.object({
  template: z.string(),
  size: z.string(),
  ready: z.int(),
  wanted: z.int().optional(),
});

/** Answer of `GET /v1/org`. */
export const OrgRecord = named("Org", {
  org_id: z.string(),
  name: z.string(),
  created_at: timestamp,
  suspended: z.boolean(),
  capacity: z.object({
    running: z.int(),
    warm: z.int(),
    limits: z.object({ running: z.int(), warm: z.int().optional() }),
    /** Warm machines for the next create: those shared by all callers, and those for the caller's own templates. */
    pool: z.array(ReadyMachines).optional(),
  }),
  limits: z.object({
    concurrent_sessions: z.int(),
    fork_children: z.int(),
    idle_timeout_ms: z.int(),
    max_lifetime_ms: z.int(),
    max_active_window_ms: z.int(),
    /** GB of all volumes of the organisation together, used and at most, and of one volume at most. */
    volume_gb_used: z.int(),
    volume_gb_total: z.int(),
    volume_max_gb: z.int(),
  }),
  default_size: z.string(),
  sizes: z.array(
    z.object({
      name: z.string(),
      vcpus: z.int(),
      mem_mb: z.int(),
      disk_gb: z.int(),
      available: z.boolean(),
    }),
  ),
});
export type OrgRecord = z.infer<typeof OrgRecord>;

/** Answer of `GET /v1/whoami`. */
export const Whoami = named("Whoami", {
  kind: z.enum(["user", "api_key", "scoped_token"]),
  org_id: z.string(),
  project_id: z.string().optional(),
  key_id: z.string().optional(),
  role: z.enum(KEY_ROLES).optional(),
  session_id: z.string().optional(),
  capabilities: z.array(z.enum(CAPABILITIES)).optional(),
});
