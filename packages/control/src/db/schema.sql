-- Made by `npm run schema` from the migrations. Do not edit.

create table api_keys (
  id text not null,
  org_id text not null,
  default_project_id text,
  scoped_project_id text,
  name text not null,
  digest bytea not null,
  concurrent_sessions integer,
  created_at timestamp(3) with time zone not null default now(),
  expires_at timestamp(3) with time zone,
  revoked_at timestamp(3) with time zone,
  role text not null default 'full'::text,
  prefix text,
  last_used_at timestamp(3) with time zone,
  constraint api_keys_concurrent_sessions_check CHECK ((concurrent_sessions >= 0)),
  constraint api_keys_default_project_id_fkey FOREIGN KEY (default_project_id) REFERENCES projects(id),
  constraint api_keys_digest_key UNIQUE (digest),
  constraint api_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint api_keys_pkey PRIMARY KEY (id),
  constraint api_keys_role_check CHECK ((role = ANY (ARRAY['full'::text, 'read'::text]))),
  constraint api_keys_scoped_project_id_fkey FOREIGN KEY (scoped_project_id) REFERENCES projects(id)
);
CREATE INDEX api_keys_org ON public.api_keys USING btree (org_id) WHERE (revoked_at IS NULL);

create table archive_spaces (
  id text not null,
  org_id text not null,
  owner text not null,
  kek_id text not null,
  data_key bytea not null,
  swept_until timestamp(3) with time zone,
  is_local boolean not null default false,
  constraint archive_spaces_owner_key UNIQUE (owner),
  constraint archive_spaces_pkey PRIMARY KEY (id)
);
CREATE INDEX archive_spaces_kek ON public.archive_spaces USING btree (kek_id);

create table archives (
  id text not null,
  org_id text not null,
  project_id text,
  space_id text not null,
  kind text not null,
  snapshot_id text not null,
  session_id text,
  base_archive text,
  depth integer not null default 0,
  baseline_id text,
  state text not null default 'pending'::text,
  created_at timestamp(3) with time zone not null default now(),
  attempt integer not null default 0,
  tries integer not null default 0,
  failed_at timestamp(3) with time zone,
  error text,
  kek_id text not null,
  data_key bytea not null,
  contents bytea,
  chunks bytea,
  differing_bytes bigint,
  stored_bytes bigint,
  uploaded_at timestamp(3) with time zone,
  is_cold boolean not null default false,
  constraint archives_base_archive_fkey FOREIGN KEY (base_archive) REFERENCES archives(id) DEFERRABLE INITIALLY DEFERRED,
  constraint archives_complete CHECK (((state = 'complete'::text) = ((contents IS NOT NULL) AND (chunks IS NOT NULL) AND (uploaded_at IS NOT NULL)))),
  constraint archives_error CHECK (((error IS NOT NULL) = (state = 'failed'::text))),
  constraint archives_kind_check CHECK ((kind = ANY (ARRAY['pause'::text, 'checkpoint'::text, 'template'::text, 'baseline'::text]))),
  constraint archives_pkey PRIMARY KEY (id),
  constraint archives_session CHECK (((session_id IS NULL) = (kind = 'baseline'::text))),
  constraint archives_snapshot_id_key UNIQUE (snapshot_id),
  constraint archives_space_id_fkey FOREIGN KEY (space_id) REFERENCES archive_spaces(id),
  constraint archives_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'complete'::text, 'failed'::text])))
);
CREATE INDEX archives_kek ON public.archives USING btree (kek_id);
CREATE INDEX archives_of_base ON public.archives USING btree (base_archive) WHERE (base_archive IS NOT NULL);
CREATE INDEX archives_of_session ON public.archives USING btree (session_id);
CREATE INDEX archives_of_space ON public.archives USING btree (space_id);
CREATE INDEX archives_unfinished ON public.archives USING btree (created_at) WHERE (state <> 'complete'::text);

create table artifact_files (
  artifact_id text not null,
  position integer not null,
  path text not null,
  size_bytes bigint not null,
  pieces bytea not null,
  constraint artifact_files_artifact_id_fkey FOREIGN KEY (artifact_id) REFERENCES artifacts(id) ON DELETE CASCADE,
  constraint artifact_files_artifact_id_path_key UNIQUE (artifact_id, path),
  constraint artifact_files_pkey PRIMARY KEY (artifact_id, "position")
);

create table artifacts (
  id text not null,
  org_id text not null,
  project_id text,
  session_id text not null,
  seq bigint not null,
  cause text not null,
  paths text[] not null,
  state text not null default 'pending'::text,
  captured_at timestamp(3) with time zone not null default service_now(),
  expires_at timestamp(3) with time zone not null,
  attempts integer not null default 0,
  error text,
  kek_id text,
  data_key bytea,
  constraint artifacts_cause_check CHECK ((cause = ANY (ARRAY['request'::text, 'teardown'::text]))),
  constraint artifacts_data_key CHECK (((kek_id IS NULL) = (data_key IS NULL))),
  constraint artifacts_error CHECK (((error IS NOT NULL) = (state = 'failed'::text))),
  constraint artifacts_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id),
  constraint artifacts_pkey PRIMARY KEY (id),
  constraint artifacts_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'ready'::text, 'failed'::text])))
);
CREATE INDEX artifacts_expiry ON public.artifacts USING btree (expires_at);
CREATE INDEX artifacts_kek ON public.artifacts USING btree (kek_id) WHERE (kek_id IS NOT NULL);
CREATE INDEX artifacts_of_session ON public.artifacts USING btree (session_id, seq DESC);
CREATE INDEX artifacts_pending ON public.artifacts USING btree (captured_at) WHERE (state = 'pending'::text);

create table attachments (
  id text not null,
  session_id text not null,
  incarnation integer not null,
  kind text not null,
  lease_until timestamp(3) with time zone not null,
  constraint attachments_kind_check CHECK ((kind = ANY (ARRAY['pty'::text, 'tunnel'::text]))),
  constraint attachments_pkey PRIMARY KEY (id),
  constraint attachments_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX attachments_lease ON public.attachments USING btree (lease_until);
CREATE INDEX attachments_session ON public.attachments USING btree (session_id, incarnation);

create table audit_heads (
  org_id text not null,
  seq bigint not null,
  hash bytea not null,
  at timestamp(3) with time zone not null,
  anchor_seq bigint not null,
  anchor_hash bytea not null,
  anchor_at timestamp(3) with time zone not null,
  unsealed_until bigint not null,
  seal bytea not null,
  constraint audit_heads_pkey PRIMARY KEY (org_id)
);

create table audit_links (
  org_id text not null,
  seq bigint not null,
  entry_id text not null,
  kind text not null,
  linked_at timestamp(3) with time zone not null,
  digest bytea not null,
  hash bytea not null,
  seal bytea not null,
  constraint audit_links_kind_check CHECK ((kind = ANY (ARRAY['entry'::text, 'start'::text, 'end'::text]))),
  constraint audit_links_pkey PRIMARY KEY (org_id, seq)
);
CREATE INDEX audit_links_entry ON public.audit_links USING btree (entry_id);

create table audit_log (
  seq bigint not null,
  id text not null,
  org_id text not null,
  session_id text,
  at timestamp(3) with time zone not null,
  actor_kind text not null,
  actor_id text not null,
  action text not null,
  target text not null,
  outcome text not null,
  code text,
  request_id text not null,
  ip text not null,
  meta jsonb not null,
  seal bytea,
  linked text not null default 'no'::text,
  written_at timestamp(3) with time zone not null default now(),
  constraint audit_log_id_check CHECK ((id ~ '^aud_[a-z0-9]{21}$'::text)),
  constraint audit_log_id_key UNIQUE (id),
  constraint audit_log_linked_check CHECK ((linked = ANY (ARRAY['no'::text, 'start'::text, 'whole'::text, 'refused'::text]))),
  constraint audit_log_outcome_check CHECK ((outcome = ANY (ARRAY['pending'::text, 'ok'::text, 'error'::text, 'denied'::text]))),
  constraint audit_log_pkey PRIMARY KEY (seq)
);
CREATE INDEX audit_log_actor ON public.audit_log USING btree (org_id, actor_id, at DESC, seq DESC);
CREATE INDEX audit_log_age ON public.audit_log USING btree (at);
CREATE INDEX audit_log_org ON public.audit_log USING btree (org_id, at DESC, seq DESC);
CREATE INDEX audit_log_org_seq ON public.audit_log USING btree (org_id, seq);
CREATE INDEX audit_log_session ON public.audit_log USING btree (session_id, at DESC, seq DESC) WHERE (session_id IS NOT NULL);
CREATE INDEX audit_log_target ON public.audit_log USING btree (org_id, target, at DESC, seq DESC);
CREATE INDEX audit_log_unlinked ON public.audit_log USING btree (seq) WHERE ((linked = 'no'::text) OR ((linked = 'start'::text) AND (outcome <> 'pending'::text)));

create table checkpoints (
  id text not null,
  org_id text not null,
  project_id text,
  session_id text not null,
  name text,
  labels jsonb,
  size_bytes bigint not null,
  created_at timestamp(3) with time zone not null default now(),
  size text not null,
  template text not null,
  template_version text,
  baseline text,
  env jsonb,
  egress jsonb not null,
  no_sudo boolean not null,
  kek_id text,
  data_key bytea,
  sealed_env bytea,
  may_hold_secrets boolean not null default false,
  state_key bytea,
  constraint checkpoints_data_key CHECK ((((kek_id IS NULL) = (data_key IS NULL)) AND ((data_key IS NULL) = ((sealed_env IS NULL) AND (state_key IS NULL))))),
  constraint checkpoints_id_check CHECK ((id ~ '^chk_[a-z0-9]{21}$'::text)),
  constraint checkpoints_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint checkpoints_pkey PRIMARY KEY (id),
  constraint checkpoints_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX checkpoints_kek ON public.checkpoints USING btree (kek_id) WHERE (kek_id IS NOT NULL);
CREATE INDEX checkpoints_org ON public.checkpoints USING btree (org_id, created_at DESC, id DESC);
CREATE INDEX checkpoints_session ON public.checkpoints USING btree (session_id, created_at DESC, id DESC);
CREATE INDEX checkpoints_unsealed ON public.checkpoints USING btree (id) WHERE (env IS NOT NULL);
CREATE UNIQUE INDEX checkpoints_name ON public.checkpoints USING btree (session_id, name) WHERE (name IS NOT NULL);

create table connection_uses (
  session_id text not null,
  name text not null,
  minute timestamp with time zone not null,
  sent bigint not null,
  reflected bigint not null,
  refused bigint not null,
  constraint connection_uses_pkey PRIMARY KEY (session_id, name, minute),
  constraint connection_uses_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX connection_uses_minute ON public.connection_uses USING btree (minute);

create table connections (
  session_id text not null,
  name text not null,
  host text not null,
  seq bigint not null,
  auth_type text not null,
  header_name text not null,
  methods text[] not null,
  paths text[] not null,
  generation bigint not null default 1,
  created_at timestamp(3) with time zone not null default now(),
  expires_at timestamp(3) with time zone not null,
  expiry_emitted boolean not null default false,
  revoked_at timestamp(3) with time zone,
  last_used_at timestamp(3) with time zone,
  reflections integer not null default 0,
  suspended_at timestamp(3) with time zone,
  sealed bytea,
  bind_claimed_until timestamp(3) with time zone,
  asked_ttl_s integer,
  constraint connections_auth_type_check CHECK ((auth_type = ANY (ARRAY['bearer'::text, 'header'::text]))),
  constraint connections_check CHECK (((revoked_at IS NULL) OR (sealed IS NULL))),
  constraint connections_pkey PRIMARY KEY (session_id, name),
  constraint connections_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE,
  constraint connections_session_id_host_key UNIQUE (session_id, host)
);
CREATE INDEX connections_expiry ON public.connections USING btree (expires_at) WHERE ((revoked_at IS NULL) AND (NOT expiry_emitted));

create table egress_denials (
  session_id text not null,
  minute timestamp with time zone not null,
  host text not null,
  address text not null,
  port integer not null,
  reason text not null,
  count bigint not null,
  constraint egress_denials_pkey PRIMARY KEY (session_id, minute, host, address, port, reason),
  constraint egress_denials_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX egress_denials_minute ON public.egress_denials USING btree (minute);

create table egress_log (
  seq bigint not null,
  session_id text not null,
  at timestamp(3) with time zone not null,
  kind text not null,
  host text,
  address text,
  port integer,
  decision text not null,
  reason text not null,
  bytes_out bigint not null,
  bytes_in bigint not null,
  count bigint not null,
  connection text,
  method text,
  path text,
  rule integer,
  status integer,
  is_unscanned boolean,
  constraint egress_log_decision_check CHECK ((decision = ANY (ARRAY['allowed'::text, 'denied'::text]))),
  constraint egress_log_pkey PRIMARY KEY (seq),
  constraint egress_log_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX egress_log_age ON public.egress_log USING btree (at);
CREATE INDEX egress_log_part ON public.egress_log USING btree (session_id, ((kind = 'dns'::text)), decision, seq DESC);
CREATE INDEX egress_log_session ON public.egress_log USING btree (session_id, seq DESC);

create table egress_usage (
  session_id text not null,
  day text not null,
  machine_id text not null,
  egress_start bigint not null,
  egress_last bigint not null,
  ingress_start bigint not null,
  ingress_last bigint not null,
  constraint egress_usage_pkey PRIMARY KEY (session_id, day, machine_id),
  constraint egress_usage_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX egress_usage_day ON public.egress_usage USING btree (day);
CREATE INDEX egress_usage_machine ON public.egress_usage USING btree (machine_id, day DESC);

create table event_head (
  only_row boolean not null default true,
  position bigint not null,
  constraint event_head_only_row_check CHECK (only_row),
  constraint event_head_pkey PRIMARY KEY (only_row)
);

create table events (
  seq bigint not null,
  id text not null,
  position bigint,
  type text not null,
  created_at timestamp(3) with time zone not null default service_now(),
  org_id text not null,
  project_id text,
  session_id text,
  data jsonb not null,
  constraint events_id_key UNIQUE (id),
  constraint events_pkey PRIMARY KEY (seq),
  constraint events_position_key UNIQUE ("position")
);
CREATE INDEX events_age ON public.events USING btree (created_at);
CREATE INDEX events_org ON public.events USING btree (org_id, "position");
CREATE INDEX events_session ON public.events USING btree (session_id, "position") WHERE (session_id IS NOT NULL);
CREATE INDEX events_waiting ON public.events USING btree (seq) WHERE ("position" IS NULL);

create table idempotency_keys (
  org_id text not null,
  key text not null,
  body_digest bytea not null,
  session_id text not null,
  created_at timestamp(3) with time zone not null default now(),
  constraint idempotency_keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint idempotency_keys_pkey PRIMARY KEY (org_id, key),
  constraint idempotency_keys_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX idempotency_keys_age ON public.idempotency_keys USING btree (created_at);

create table installation (
  only_row boolean not null default true,
  pepper_check bytea not null,
  created_at timestamp(3) with time zone not null default now(),
  constraint installation_only_row_check CHECK (only_row),
  constraint installation_pkey PRIMARY KEY (only_row)
);

create table node_reports (
  node_id text not null,
  cursor text not null,
  constraint node_reports_pkey PRIMARY KEY (node_id)
);

create table orgs (
  id text not null,
  name text not null,
  concurrent_sessions integer,
  suspended boolean not null default false,
  created_at timestamp(3) with time zone not null default now(),
  egress_cap_bytes bigint,
  egress_capped_on text,
  constraint orgs_concurrent_sessions_check CHECK ((concurrent_sessions >= 0)),
  constraint orgs_egress_cap_bytes_check CHECK ((egress_cap_bytes >= 0)),
  constraint orgs_pkey PRIMARY KEY (id)
);

create table preview_routes (
  session_id text not null,
  port integer not null,
  version bigint not null,
  visibility text not null,
  auth text not null,
  sealed_token bytea,
  token_sha256 text,
  bearer_sha256 text,
  is_bearer_told boolean not null default false,
  login_url text,
  constraint preview_routes_auth_check CHECK ((auth = ANY (ARRAY['none'::text, 'bearer'::text]))),
  constraint preview_routes_check CHECK (((visibility = 'token'::text) = ((sealed_token IS NOT NULL) AND (token_sha256 IS NOT NULL)))),
  constraint preview_routes_check1 CHECK (((auth = 'bearer'::text) = (bearer_sha256 IS NOT NULL))),
  constraint preview_routes_pkey PRIMARY KEY (session_id, port),
  constraint preview_routes_port_check CHECK (((port >= 1) AND (port <= 65535))),
  constraint preview_routes_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE,
  constraint preview_routes_visibility_check CHECK ((visibility = ANY (ARRAY['token'::text, 'public'::text])))
);

create table projects (
  id text not null,
  org_id text not null,
  name text not null,
  is_default boolean not null default false,
  created_at timestamp(3) with time zone not null default now(),
  labels jsonb,
  deleted_at timestamp(3) with time zone,
  constraint projects_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint projects_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX projects_name ON public.projects USING btree (org_id, name) WHERE (deleted_at IS NULL);

create table registry_credentials (
  id text not null,
  org_id text not null,
  project_id text,
  name text not null,
  registry_host text not null,
  username text not null,
  kek_id text not null,
  data_key bytea not null,
  sealed bytea not null,
  created_at timestamp(3) with time zone not null default now(),
  constraint registry_credentials_id_check CHECK ((id ~ '^rcr_[a-z0-9]{21}$'::text)),
  constraint registry_credentials_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint registry_credentials_pkey PRIMARY KEY (id),
  constraint registry_credentials_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id)
);
CREATE INDEX registry_credentials_kek ON public.registry_credentials USING btree (kek_id);
CREATE UNIQUE INDEX registry_credentials_name ON public.registry_credentials USING btree (org_id, COALESCE(project_id, ''::text), name);

create table schema_migrations (
  number integer not null,
  name text not null,
  applied_at timestamp with time zone not null default now(),
  constraint schema_migrations_pkey PRIMARY KEY (number)
);

create table sealed_values (
  session_id text not null,
  kind text not null,
  names text[] not null default '{}'::text[],
  sealed bytea not null,
  constraint sealed_values_kind_check CHECK ((kind = ANY (ARRAY['env'::text, 'secrets'::text]))),
  constraint sealed_values_pkey PRIMARY KEY (session_id, kind),
  constraint sealed_values_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);

create table session_tokens (
  digest bytea not null,
  org_id text not null,
  session_id text not null,
  key_id text,
  capabilities text[] not null,
  created_at timestamp(3) with time zone not null default now(),
  expires_at timestamp(3) with time zone not null,
  revoked_at timestamp(3) with time zone,
  last_used_at timestamp(3) with time zone,
  constraint session_tokens_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_keys(id) ON DELETE SET NULL,
  constraint session_tokens_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint session_tokens_pkey PRIMARY KEY (digest),
  constraint session_tokens_session_id_fkey FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
CREATE INDEX session_tokens_expiry ON public.session_tokens USING btree (expires_at);
CREATE INDEX session_tokens_session ON public.session_tokens USING btree (session_id);

create table sessions (
  id text not null,
  org_id text not null,
  project_id text,
  key_id text,
  origin text not null,
  state text not null,
  incarnation integer not null default 0,
  status_detail text,
  status_reason text,
  size text not null,
  template text not null,
  name text,
  labels jsonb,
  external_id text,
  env jsonb,
  egress jsonb not null,
  no_sudo boolean not null,
  on_pty_detach text not null,
  paused_ttl_ms bigint not null,
  idle_timeout_ms bigint,
  max_lifetime_ms bigint,
  destroy_on_completion boolean not null,
  command_capture text not null,
  wake_on_http boolean not null,
  created_at timestamp(3) with time zone not null default service_now(),
  last_active_at timestamp(3) with time zone not null default service_now(),
  state_changed_at timestamp(3) with time zone not null default service_now(),
  live_since timestamp(3) with time zone,
  ended_at timestamp(3) with time zone,
  end_reason text,
  timings jsonb,
  provision_claimed_until timestamp(3) with time zone,
  destroy_after timestamp(3) with time zone,
  machine_released_at timestamp(3) with time zone,
  paused_at timestamp(3) with time zone,
  resumed_at timestamp(3) with time zone,
  wake_at timestamp(3) with time zone,
  wake_retry_at timestamp(3) with time zone,
  wake_drop_at timestamp(3) with time zone,
  due_at timestamp(3) with time zone,
  op text,
  op_id text,
  op_input jsonb,
  op_claimed_until timestamp(3) with time zone,
  snapshot_id text,
  snapshot_bytes bigint,
  origin_snapshot_id text,
  origin_checkpoint_id text,
  parent_session_id text,
  template_version text,
  baseline text,
  busy_until timestamp(3) with time zone,
  may_keep_alive boolean not null default false,
  due_claim uuid,
  network_generation bigint not null default 1,
  network_applied bigint not null default 0,
  exposed jsonb,
  guest_ip text,
  egress_cap_bytes bigint,
  egress_limit_bytes bigint,
  egress_capped_on text,
  egress_capped_bytes bigint,
  command_left_ms bigint,
  command_goes_on boolean not null default false,
  isolation text,
  kek_id text,
  data_key bytea,
  may_hold_secrets boolean not null default false,
  bound_hosts text[],
  ca_certificate text,
  ca_key bytea,
  connections_version bigint not null default 0,
  state_key bytea,
  volume_id text,
  volume_gb integer,
  artifact_paths text[],
  pause_detail text,
  constraint sessions_authority CHECK (((bound_hosts IS NULL) = (ca_certificate IS NULL))),
  constraint sessions_check CHECK (((state = 'destroyed'::text) = ((ended_at IS NOT NULL) AND (end_reason IS NOT NULL)))),
  constraint sessions_check1 CHECK ((((op IS NULL) = (op_id IS NULL)) AND ((op IS NULL) = (op_input IS NULL)))),
  constraint sessions_check2 CHECK (((state <> 'paused'::text) OR ((snapshot_id IS NOT NULL) AND (paused_at IS NOT NULL)))),
  constraint sessions_data_key CHECK (((kek_id IS NULL) = (data_key IS NULL))),
  constraint sessions_egress_cap_bytes_check CHECK ((egress_cap_bytes > 0)),
  constraint sessions_id_check CHECK ((id ~ '^[a-z0-9]{21}$'::text)),
  constraint sessions_incarnation_check CHECK ((incarnation >= 0)),
  constraint sessions_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_keys(id) ON DELETE SET NULL,
  constraint sessions_op_check CHECK ((op = ANY (ARRAY['pause'::text, 'wake'::text, 'restore'::text, 'checkpoint'::text, 'fork'::text, 'save_template'::text, 'settle'::text]))),
  constraint sessions_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint sessions_origin_check CHECK ((origin = ANY (ARRAY['api'::text, 'run'::text]))),
  constraint sessions_pkey PRIMARY KEY (id),
  constraint sessions_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id),
  constraint sessions_state_check CHECK ((state = ANY (ARRAY['creating'::text, 'live'::text, 'paused'::text, 'lifetime_expired'::text, 'node_lost'::text, 'failed'::text, 'destroyed'::text]))),
  constraint sessions_state_key CHECK (((state_key IS NULL) OR (data_key IS NOT NULL))),
  constraint sessions_volume CHECK (((volume_id IS NULL) = (volume_gb IS NULL)))
);
CREATE INDEX sessions_active ON public.sessions USING btree (org_id, key_id) WHERE ((state = ANY (ARRAY['creating'::text, 'live'::text])) OR ((state = 'paused'::text) AND (op = ANY (ARRAY['wake'::text, 'restore'::text]))));
CREATE INDEX sessions_capped ON public.sessions USING btree (id) WHERE (egress_cap_bytes IS NOT NULL);
CREATE INDEX sessions_command_goes_on ON public.sessions USING btree (id) WHERE (command_goes_on AND (state = 'live'::text));
CREATE INDEX sessions_creating ON public.sessions USING btree (provision_claimed_until) WHERE (state = 'creating'::text);
CREATE INDEX sessions_current ON public.sessions USING btree (org_id, created_at DESC, id DESC) WHERE (state <> 'destroyed'::text);
CREATE INDEX sessions_destroy_after ON public.sessions USING btree (destroy_after) WHERE ((destroy_after IS NOT NULL) AND (state <> 'destroyed'::text));
CREATE INDEX sessions_due ON public.sessions USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX sessions_ended ON public.sessions USING btree (org_id, ended_at DESC, id DESC) WHERE (state = 'destroyed'::text);
CREATE INDEX sessions_external ON public.sessions USING btree (org_id, external_id, created_at DESC) WHERE ((external_id IS NOT NULL) AND (state <> 'destroyed'::text));
CREATE INDEX sessions_kek ON public.sessions USING btree (kek_id) WHERE (kek_id IS NOT NULL);
CREATE INDEX sessions_network_behind ON public.sessions USING btree (id) WHERE ((state = 'live'::text) AND (network_applied < network_generation));
CREATE INDEX sessions_operations ON public.sessions USING btree (op_claimed_until) WHERE ((op IS NOT NULL) AND (state <> 'destroyed'::text));
CREATE INDEX sessions_origins ON public.sessions USING btree (origin_snapshot_id) WHERE (origin_snapshot_id IS NOT NULL);
CREATE INDEX sessions_snapshots ON public.sessions USING btree (snapshot_id) WHERE (snapshot_id IS NOT NULL);
CREATE INDEX sessions_unreleased ON public.sessions USING btree (id) WHERE ((machine_released_at IS NULL) AND (state = ANY (ARRAY['failed'::text, 'destroyed'::text])));
CREATE INDEX sessions_unsealed ON public.sessions USING btree (id) WHERE (env IS NOT NULL);
CREATE INDEX sessions_with_connections ON public.sessions USING btree (id) WHERE (ca_key IS NOT NULL);
CREATE UNIQUE INDEX sessions_name ON public.sessions USING btree (org_id, COALESCE(project_id, ''::text), name) WHERE ((name IS NOT NULL) AND (state <> 'destroyed'::text));

create table snapshot_names (
  id text not null,
  named_at timestamp with time zone not null default now(),
  constraint snapshot_names_pkey PRIMARY KEY (id)
);

create table template_builds (
  id text not null,
  org_id text not null,
  project_id text,
  seq bigint not null,
  name text not null,
  version integer not null,
  description text,
  reference text not null,
  credentials_of text,
  sizes text[] not null,
  state text not null default 'queued'::text,
  created_at timestamp(3) with time zone not null default now(),
  attempts integer not null default 0,
  begun_at timestamp(3) with time zone,
  not_before timestamp(3) with time zone,
  claimed_until timestamp(3) with time zone,
  progress jsonb,
  error text,
  log jsonb,
  session_id text,
  layout text,
  image text,
  constraint template_builds_credentials_of_fkey FOREIGN KEY (credentials_of) REFERENCES projects(id),
  constraint template_builds_error CHECK (((error IS NOT NULL) = (state = 'failed'::text))),
  constraint template_builds_id_check CHECK ((id ~ '^tpl_[a-z0-9]{21}$'::text)),
  constraint template_builds_layout CHECK (((session_id IS NULL) = (layout IS NULL))),
  constraint template_builds_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint template_builds_org_id_name_version_key UNIQUE (org_id, name, version),
  constraint template_builds_pkey PRIMARY KEY (id),
  constraint template_builds_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id),
  constraint template_builds_state_check CHECK ((state = ANY (ARRAY['queued'::text, 'building'::text, 'ready'::text, 'failed'::text]))),
  constraint template_builds_version_check CHECK ((version >= 1))
);
CREATE INDEX template_builds_queue ON public.template_builds USING btree (seq) WHERE (state = ANY (ARRAY['queued'::text, 'building'::text]));
CREATE UNIQUE INDEX template_builds_unfinished ON public.template_builds USING btree (org_id, COALESCE(project_id, ''::text), name) WHERE (state = ANY (ARRAY['queued'::text, 'building'::text]));

create table template_names (
  org_id text not null,
  name text not null,
  last_version integer not null,
  constraint template_names_last_version_check CHECK ((last_version >= 1)),
  constraint template_names_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint template_names_pkey PRIMARY KEY (org_id, name)
);

create table templates (
  id text not null,
  org_id text not null,
  project_id text,
  name text not null,
  version integer not null,
  description text,
  session_id text,
  has_memory boolean not null,
  created_at timestamp(3) with time zone not null default now(),
  size text not null,
  baseline text not null,
  no_sudo boolean not null,
  kek_id text,
  data_key bytea,
  state_key bytea,
  source_image text,
  sizes text[],
  constraint templates_data_key CHECK ((((kek_id IS NULL) = (data_key IS NULL)) AND ((data_key IS NULL) = (state_key IS NULL)))),
  constraint templates_id_check CHECK ((id ~ '^tpl_[a-z0-9]{21}$'::text)),
  constraint templates_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint templates_org_id_name_version_key UNIQUE (org_id, name, version),
  constraint templates_pkey PRIMARY KEY (id),
  constraint templates_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id),
  constraint templates_source CHECK ((((session_id IS NULL) = (source_image IS NOT NULL)) AND ((source_image IS NULL) = (sizes IS NULL)))),
  constraint templates_version_check CHECK ((version >= 1))
);
CREATE INDEX templates_kek ON public.templates USING btree (kek_id) WHERE (kek_id IS NOT NULL);

create table volumes (
  id text not null,
  org_id text not null,
  project_id text,
  size_gb integer not null,
  state text not null default 'making'::text,
  created_at timestamp(3) with time zone not null default now(),
  session_id text,
  last_saved_at timestamp(3) with time zone,
  constraint volumes_id_check CHECK ((id ~ '^vol_[a-z0-9]{21}$'::text)),
  constraint volumes_org_id_fkey FOREIGN KEY (org_id) REFERENCES orgs(id) ON DELETE CASCADE,
  constraint volumes_pkey PRIMARY KEY (id),
  constraint volumes_project_id_fkey FOREIGN KEY (project_id) REFERENCES projects(id),
  constraint volumes_session_id_key UNIQUE (session_id),
  constraint volumes_size_gb_check CHECK ((size_gb >= 1)),
  constraint volumes_state_check CHECK ((state = ANY (ARRAY['making'::text, 'ready'::text, 'deleting'::text])))
);
CREATE INDEX volumes_org ON public.volumes USING btree (org_id, created_at DESC, id DESC);
CREATE INDEX volumes_unfinished ON public.volumes USING btree (created_at) WHERE (state <> 'ready'::text);
