import type {
  AuthType,
  BuildLines,
  BuildProgress,
  Capability,
  CreateTiming,
  KeyRole,
  PreviewAuth,
  PreviewVisibility,
} from "@vivarium/contract/api";
import type { ColumnType, Generated, GeneratedAlways } from "kysely";

/** The tables for Kysely. `schema.sql` beside this file is the result of the migrations. */
export interface Tables {
  installation: { only_row: Generated<boolean>; pepper_check: Buffer; created_at: Generated<Date> };
  orgs: OrgTable;
  projects: ProjectTable;
  api_keys: ApiKeyTable;
  session_tokens: SessionTokenTable;
  sealed_values: SealedValueTable;
  connections: ConnectionTable;
  sessions: SessionTable;
  idempotency_keys: IdempotencyKeyTable;
  checkpoints: CheckpointTable;
  template_names: { org_id: string; name: string; last_version: number };
  templates: TemplateTable;
  template_builds: TemplateBuildTable;
  volumes: VolumeTable;
  registry_credentials: RegistryCredentialTable;
  artifacts: ArtifactTable;
  artifact_files: ArtifactFileTable;
  archive_spaces: ArchiveSpaceTable;
  archives: ArchiveTable;
  snapshot_names: { id: string; named_at: Generated<Date> };
  attachments: AttachmentTable;
  audit_log: AuditLogTable;
  audit_links: AuditLinkTable;
  audit_heads: AuditHeadTable;
  egress_usage: EgressUsageTable;
  egress_log: EgressLogTable;
  node_reports: { node_id: string; cursor: string };
  preview_routes: PreviewRouteTable;
  events: EventTable;
  event_head: { only_row: Generated<boolean>; position: number };
  egress_denials: EgressDenialTable;
  connection_uses: ConnectionUseTable;
}

type Json<T> = ColumnType<T, string, string>;

interface OrgTable {
  id: string;
  name: string;
  /** Its own ceiling of sessions; null: the service's. */
  concurrent_sessions: number | null;
  suspended: Generated<boolean>;
  created_at: Generated<Date>;
  egress_cap_bytes: number | null;
  egress_capped_on: string | null;
}

interface ProjectTable {
  id: string;
  org_id: string;
  name: string;
  is_default: Generated<boolean>;
  created_at: Generated<Date>;
  labels: Json<Record<string, string> | null> | null;
  deleted_at: Date | null;
}

interface SessionTokenTable {
  digest: Buffer;
  org_id: string;
  session_id: string;
  key_id: string | null;
  capabilities: Capability[];
  created_at: Generated<Date>;
  expires_at: Date;
  revoked_at: Date | null;
  last_used_at: Date | null;
}

interface SealedValueTable {
  session_id: string;
  kind: "env" | "secrets";
  names: string[];
  sealed: Buffer;
}

export interface ConnectionTable {
  session_id: string;
  name: string;
  host: string;
  seq: GeneratedAlways<number>;
  auth_type: AuthType;
  header_name: string;
  methods: string[];
  paths: string[];
  generation: Generated<number>;
  created_at: Generated<Date>;
  expires_at: Date;
  expiry_emitted: Generated<boolean>;
  revoked_at: Date | null;
  last_used_at: Date | null;
  reflections: Generated<number>;
  suspended_at: Date | null;
  sealed: Buffer | null;
  bind_claimed_until: Date | null;
  asked_ttl_s: number | null;
}

interface ApiKeyTable {
  id: string;
  org_id: string;
  default_project_id: string | null;
  scoped_project_id: string | null;
  name: string;
  digest: Buffer;
  concurrent_sessions: number | null;
  created_at: Generated<Date>;
  expires_at: Date | null;
  revoked_at: Date | null;
  role: Generated<KeyRole>;
  prefix: string | null;
  last_used_at: Date | null;
}

export interface SessionTable
  extends StartColumns,
    SecretColumns,
    ConnectionColumns,
    MoveColumns,
    OperationColumns,
    DeadlineColumns,
    LeaseColumns,
    NetworkColumns {}

/** Written by starts/ alone. Set when the session is created; `status_detail` counts only until it is live. */
interface StartColumns {
  id: string;
  org_id: string;
  project_id: string | null;
  key_id: string | null;
  origin: "api" | "run";
  size: string;
  template: string;
  template_version: string | null;
  baseline: string | null;
  name: string | null;
  labels: Json<Record<string, string> | null> | null;
  external_id: string | null;
  no_sudo: boolean;
  on_pty_detach: string;
  paused_ttl_ms: number;
  idle_timeout_ms: number | null;
  max_lifetime_ms: number | null;
  destroy_on_completion: boolean;
  command_capture: string;
  created_at: Generated<Date>;
  origin_snapshot_id: string | null;
  origin_checkpoint_id: string | null;
  parent_session_id: string | null;
  may_hold_secrets: Generated<boolean>;
  status_detail: string | null;
  volume_id: string | null;
  volume_gb: number | null;
  artifact_paths: string[] | null;
}

/** Written by secrets/ alone. The session's data key, and its state key; `env` is set where there is no key-encryption key. */
interface SecretColumns {
  env: Json<Record<string, string> | null> | null;
  kek_id: string | null;
  data_key: Buffer | null;
  state_key: Buffer | null;
}

/** Written by connections/ alone. The authority that the session's guest trusts, and the hosts that it is for. */
interface ConnectionColumns {
  bound_hosts: string[] | null;
  ca_certificate: string | null;
  ca_key: Buffer | null;
  connections_version: Generated<number>;
}

/** Written by moves/ alone. The session's state, and its machine or snapshot. */
interface MoveColumns {
  state: string;
  incarnation: Generated<number>;
  status_reason: string | null;
  state_changed_at: Generated<Date>;
  live_since: Date | null;
  paused_at: Date | null;
  resumed_at: Date | null;
  ended_at: Date | null;
  end_reason: string | null;
  timings: Json<CreateTiming | null> | null;
  snapshot_id: string | null;
  snapshot_bytes: number | null;
  guest_ip: string | null;
  isolation: "kvm" | "emulated" | null;
  machine_released_at: Date | null;
  pause_detail: string | null;
}

/** Written by operations/ alone. The operation in progress on the session. */
interface OperationColumns {
  op: string | null;
  op_id: string | null;
  op_input: Json<Record<string, unknown> | null> | null;
  op_claimed_until: Date | null;
}

/** Written by deadlines/ alone. The session's last use, and when to check its deadlines. */
interface DeadlineColumns {
  last_active_at: Generated<Date>;
  busy_until: Date | null;
  may_keep_alive: Generated<boolean>;
  wake_at: Date | null;
  wake_retry_at: Date | null;
  wake_drop_at: Date | null;
  due_at: Date | null;
  due_claim: string | null;
}

/** Written by leases/ alone. When another process acts for a dead owner, and the rest of a paused command's lease. */
interface LeaseColumns {
  provision_claimed_until: Date | null;
  destroy_after: Date | null;
  command_left_ms: number | null;
  command_goes_on: Generated<boolean>;
}

/** Written by egress/ alone. The desired network of the session, and the one in force. */
interface NetworkColumns {
  egress: Json<{ mode: "allow" | "deny"; allow: string[] }>;
  exposed: Json<ExposedPort[] | null> | null;
  wake_on_http: boolean;
  network_generation: Generated<number>;
  network_applied: Generated<number>;
  egress_cap_bytes: number | null;
  egress_limit_bytes: number | null;
  egress_capped_on: string | null;
  egress_capped_bytes: number | null;
}

/** The fields of a route that are not secret. */
export interface ExposedPort {
  port: number;
  visibility: PreviewVisibility;
  auth: PreviewAuth;
}

export interface CheckpointTable {
  id: string;
  org_id: string;
  project_id: string | null;
  session_id: string;
  name: string | null;
  labels: Json<Record<string, string> | null> | null;
  size_bytes: number;
  created_at: Generated<Date>;
  size: string;
  template: string;
  template_version: string | null;
  baseline: string | null;
  env: Json<Record<string, string> | null> | null;
  kek_id: string | null;
  data_key: Buffer | null;
  sealed_env: Buffer | null;
  state_key: Buffer | null;
  may_hold_secrets: Generated<boolean>;
  egress: Json<{ mode: "allow" | "deny"; allow: string[] }>;
  no_sudo: boolean;
}

export interface TemplateTable {
  id: string;
  org_id: string;
  project_id: string | null;
  name: string;
  version: number;
  description: string | null;
  session_id: string | null;
  has_memory: boolean;
  created_at: Generated<Date>;
  size: string;
  baseline: string;
  no_sudo: boolean;
  kek_id: string | null;
  data_key: Buffer | null;
  state_key: Buffer | null;
  source_image: string | null;
  sizes: string[] | null;
}

export interface TemplateBuildTable {
  id: string;
  org_id: string;
  project_id: string | null;
  seq: GeneratedAlways<number>;
  name: string;
  version: number;
  description: string | null;
  reference: string;
  session_id: string | null;
  layout: string | null;
  credentials_of: string | null;
  sizes: string[];
  state: Generated<"queued" | "building" | "ready" | "failed">;
  created_at: Generated<Date>;
  attempts: Generated<number>;
  begun_at: Date | null;
  not_before: Date | null;
  claimed_until: Date | null;
  progress: Json<BuildProgress | null> | null;
  error: string | null;
  log: Json<BuildLines["lines"] | null> | null;
  image: string | null;
}

export interface VolumeTable {
  id: string;
  org_id: string;
  project_id: string | null;
  size_gb: number;
  state: Generated<"making" | "ready" | "deleting">;
  created_at: Generated<Date>;
  session_id: string | null;
  last_saved_at: Date | null;
}

export interface RegistryCredentialTable {
  id: string;
  org_id: string;
  project_id: string | null;
  name: string;
  registry_host: string;
  username: string;
  kek_id: string;
  data_key: Buffer;
  sealed: Buffer;
  created_at: Generated<Date>;
}

export interface ArtifactTable {
  id: string;
  org_id: string;
  project_id: string | null;
  session_id: string;
  seq: GeneratedAlways<number>;
  cause: "request" | "teardown";
  paths: string[];
  state: Generated<string>;
  captured_at: Generated<Date>;
  expires_at: Date;
  attempts: Generated<number>;
  error: string | null;
  kek_id: string | null;
  data_key: Buffer | null;
}

export interface ArtifactFileTable {
  artifact_id: string;
  position: number;
  path: string;
  size_bytes: number;
  pieces: Buffer;
}

export interface ArchiveSpaceTable {
  id: string;
  org_id: string;
  owner: string;
  kek_id: string;
  data_key: Buffer;
  swept_until: Date | null;
  is_local: Generated<boolean>;
}

export interface ArchiveTable {
  id: string;
  org_id: string;
  project_id: string | null;
  space_id: string;
  kind: "pause" | "checkpoint" | "template" | "baseline";
  snapshot_id: string;
  session_id: string | null;
  base_archive: string | null;
  depth: Generated<number>;
  baseline_id: string | null;
  state: Generated<"pending" | "complete" | "failed">;
  created_at: Generated<Date>;
  attempt: Generated<number>;
  tries: Generated<number>;
  failed_at: Date | null;
  error: string | null;
  kek_id: string;
  data_key: Buffer;
  contents: Buffer | null;
  chunks: Buffer | null;
  differing_bytes: number | null;
  stored_bytes: number | null;
  uploaded_at: Date | null;
  is_cold: Generated<boolean>;
}

interface AttachmentTable {
  id: string;
  session_id: string;
  incarnation: number;
  kind: "pty" | "tunnel";
  lease_until: Date;
}

export interface AuditLogTable {
  seq: Generated<number>;
  id: string;
  org_id: string;
  session_id: string | null;
  at: Date;
  actor_kind: string;
  actor_id: string;
  action: string;
  target: string;
  outcome: "pending" | "ok" | "error" | "denied";
  code: string | null;
  request_id: string;
  ip: string;
  meta: Json<Record<string, unknown>>;
  seal: Buffer | null;
  linked: Generated<"no" | "start" | "whole" | "refused">;
  written_at: Generated<Date>;
}

export interface AuditLinkTable {
  org_id: string;
  seq: number;
  entry_id: string;
  kind: "entry" | "start" | "end";
  linked_at: Date;
  digest: Buffer;
  hash: Buffer;
  seal: Buffer;
}

export interface AuditHeadTable {
  org_id: string;
  seq: number;
  hash: Buffer;
  at: Date;
  anchor_seq: number;
  anchor_hash: Buffer;
  anchor_at: Date;
  unsealed_until: number;
  seal: Buffer;
}

interface IdempotencyKeyTable {
  org_id: string;
  key: string;
  body_digest: Buffer;
  session_id: string;
  created_at: Generated<Date>;
}

interface EgressUsageTable {
  session_id: string;
  day: string;
  machine_id: string;
  egress_start: number;
  egress_last: number;
  ingress_start: number;
  ingress_last: number;
}

export interface EgressLogTable {
  seq: Generated<number>;
  session_id: string;
  at: Date;
  kind: string;
  host: string | null;
  address: string | null;
  port: number | null;
  decision: string;
  reason: string;
  connection: string | null;
  method: string | null;
  path: string | null;
  rule: number | null;
  status: number | null;
  is_unscanned: boolean | null;
  bytes_out: number;
  bytes_in: number;
  count: number;
}

export interface PreviewRouteTable {
  session_id: string;
  port: number;
  version: number;
  visibility: PreviewVisibility;
  auth: PreviewAuth;
  sealed_token: Buffer | null;
  token_sha256: string | null;
  bearer_sha256: string | null;
  is_bearer_told: Generated<boolean>;
  login_url: string | null;
}

export interface EventTable {
  seq: GeneratedAlways<number>;
  id: string;
  position: number | null;
  type: string;
  created_at: Generated<Date>;
  org_id: string;
  project_id: string | null;
  session_id: string | null;
  data: Json<Record<string, unknown>>;
}

export interface ConnectionUseTable {
  session_id: string;
  name: string;
  minute: Date;
  sent: number;
  reflected: number;
  refused: number;
}

export interface EgressDenialTable {
  session_id: string;
  minute: Date;
  host: string;
  address: string;
  port: number;
  reason: string;
  count: number;
}
