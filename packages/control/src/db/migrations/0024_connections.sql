-- Connections: credentials that the gateway adds to requests of a session to one host.
alter table sessions
  -- Hosts of its Connections, those that were revoked included; null: it was made without any, and cannot have one.
  add column bound_hosts text[],
  -- The session's certificate authority, which its guest trusts, and its key, sealed with the session's data key.
  add column ca_certificate text,
  add column ca_key bytea,
  -- Grows with every change of the session's Connections.
  add column connections_version bigint not null default 0,
  add constraint sessions_authority check ((bound_hosts is null) = (ca_certificate is null));
create index sessions_with_connections on sessions (id) where ca_key is not null;

create table connections (
  session_id text not null references sessions (id) on delete cascade,
  name text not null,
  host text not null,
  seq bigint generated always as identity,
  auth_type text not null check (auth_type in ('bearer', 'header')),
  header_name text not null,
  methods text[] not null,
  paths text[] not null,
  -- Grows with every replacement: the version of the session's Connections at that change.
  generation bigint not null default 1,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3) not null,
  -- Whether readers of events know that it has expired.
  expiry_emitted boolean not null default false,
  revoked_at timestamptz(3),
  last_used_at timestamptz(3),
  -- Answers of this generation that carried the credential.
  reflections integer not null default 0,
  suspended_at timestamptz(3),
  -- The credential, sealed with the session's data key; null once it was revoked or the session has ended.
  sealed bytea,
  primary key (session_id, name),
  unique (session_id, host),
  check (revoked_at is null or sealed is null)
);
create index connections_expiry on connections (expires_at) where revoked_at is null and not expiry_emitted;

-- Fields of a request through a Connection.
alter table egress_log
  add column connection text,
  add column method text,
  add column path text,
  add column rule integer,
  add column status integer,
  add column is_unscanned boolean;
