-- One row says which pepper the key digests of this database were made with.
create table installation (
  only_row boolean primary key default true check (only_row),
  pepper_check bytea not null,
  created_at timestamptz(3) not null default now()
);

create table orgs (
  id text primary key,
  name text not null,
  concurrent_sessions integer not null check (concurrent_sessions >= 0),
  suspended boolean not null default false,
  created_at timestamptz(3) not null default now()
);

create table projects (
  id text primary key,
  org_id text not null references orgs (id) on delete cascade,
  name text not null,
  is_default boolean not null default false,
  created_at timestamptz(3) not null default now(),
  unique (org_id, name)
);

create table api_keys (
  id text primary key,
  org_id text not null references orgs (id) on delete cascade,
  -- The project that sessions are attributed to when a create names none.
  default_project_id text references projects (id),
  -- Set on a key that may see and use one project only.
  scoped_project_id text references projects (id),
  name text not null,
  -- HMAC-SHA-256 of the key with the installation's pepper; the key itself is nowhere.
  digest bytea not null unique,
  concurrent_sessions integer check (concurrent_sessions >= 0),
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3),
  revoked_at timestamptz(3)
);

create table sessions (
  id text primary key check (id ~ '^[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  project_id text references projects (id),
  key_id text references api_keys (id) on delete set null,
  -- 'run': made by a stateless execution.
  origin text not null check (origin in ('api', 'run')),
  state text not null check (
    state in ('creating', 'live', 'paused', 'lifetime_expired', 'node_lost', 'failed', 'destroyed')
  ),
  -- Number of the machine that embodies the session; 0 while none has ever been handed out.
  incarnation integer not null default 0 check (incarnation >= 0),
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

  created_at timestamptz(3) not null default now(),
  last_active_at timestamptz(3) not null default now(),
  state_changed_at timestamptz(3) not null default now(),
  -- Start of the current live stretch, or of the last one.
  live_since timestamptz(3),
  ended_at timestamptz(3),
  end_reason text,
  -- Milliseconds per stage of the last start.
  timings jsonb,

  -- Lease of the process that provisions the session; past it, any process may take over.
  provision_claimed_until timestamptz(3),
  -- Past this instant the sweep destroys the session: a run whose owner is gone, or a completed destroy_on_completion.
  destroy_after timestamptz(3),
  -- When the node confirmed that nothing of the machine is left; null while something may be.
  machine_released_at timestamptz(3),

  check ((state = 'destroyed') = (ended_at is not null and end_reason is not null))
);

create unique index sessions_name on sessions (org_id, name) where name is not null and state <> 'destroyed';
create index sessions_current on sessions (org_id, created_at desc, id desc) where state <> 'destroyed';
create index sessions_external on sessions (org_id, external_id, created_at desc)
  where external_id is not null and state <> 'destroyed';
create index sessions_ended on sessions (org_id, ended_at desc, id desc) where state = 'destroyed';
create index sessions_active on sessions (org_id, key_id) where state in ('creating', 'live');
create index sessions_creating on sessions (provision_claimed_until) where state = 'creating';
create index sessions_destroy_after on sessions (destroy_after)
  where destroy_after is not null and state <> 'destroyed';
create index sessions_unreleased on sessions (id)
  where machine_released_at is null and state in ('failed', 'destroyed');

create table idempotency_keys (
  org_id text not null references orgs (id) on delete cascade,
  key text not null,
  -- Keyed digest of the create's parsed body.
  body_digest bytea not null,
  session_id text not null references sessions (id) on delete cascade,
  created_at timestamptz(3) not null default now(),
  primary key (org_id, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);
