-- Artifacts: files that are copied out of a session. They outlive it and its history, so nothing here refers to sessions.
create table artifacts (
  id text primary key,
  org_id text not null references orgs (id),
  project_id text,
  session_id text not null,
  seq bigint generated always as identity,
  -- A caller's request, or the end of the session, whose machine waits for the capture.
  cause text not null check (cause in ('request', 'teardown')),
  paths text[] not null,
  state text not null default 'pending' check (state in ('pending', 'ready', 'failed')),
  captured_at timestamptz(3) not null default service_now(),
  expires_at timestamptz(3) not null,
  -- How often the capture has begun.
  attempts integer not null default 0,
  error text,
  -- The key that seals its objects, wrapped; null: the service has no key-encryption key.
  kek_id text,
  data_key bytea,
  constraint artifacts_data_key check ((kek_id is null) = (data_key is null)),
  constraint artifacts_error check ((error is not null) = (state = 'failed'))
);
create index artifacts_of_session on artifacts (session_id, seq desc);
create index artifacts_pending on artifacts (captured_at) where state = 'pending';
create index artifacts_expiry on artifacts (expires_at);
create index artifacts_kek on artifacts (kek_id) where kek_id is not null;

-- Files that are whole in the object store. Callers see them once the artifact is ready.
create table artifact_files (
  artifact_id text not null references artifacts (id) on delete cascade,
  -- Its number within the artifact, which links name.
  position integer not null,
  path text not null,
  size_bytes bigint not null,
  -- Names of its pieces in the object store, 32 bytes each, in order.
  pieces bytea not null,
  primary key (artifact_id, position),
  unique (artifact_id, path)
);

alter table sessions
  -- Paths that are captured when the session is destroyed; null: none.
  add column artifact_paths text[];
