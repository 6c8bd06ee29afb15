alter table sessions
  -- Grows with every change of what the session may do on the network, and with every machine it gets; the machine
  -- that has it confirmed `network_applied`.
  add column network_generation bigint not null default 1,
  add column network_applied bigint not null default 0,
  -- Exposed ports, in their order: `preview_routes` without its secrets, for the record and for starts.
  add column exposed jsonb,
  -- Address of the machine on its host, as the node told it.
  add column guest_ip text,
  -- Bytes that may leave in a UTC day; null: no cap.
  add column egress_cap_bytes bigint check (egress_cap_bytes > 0),
  -- What the machine's own counter may reach, so that the day's cap is kept; null: no limit.
  add column egress_limit_bytes bigint,
  -- The last day (UTC, YYYY-MM-DD) on which reaching the cap was told.
  add column egress_capped_on text;

create index sessions_network_behind on sessions (id)
  where state = 'live' and network_applied < network_generation;
create index sessions_capped on sessions (id) where egress_cap_bytes is not null;

-- What left and entered on a UTC day, machine by machine. Counters are those of the machine's kernel table since its
-- start: a day's bytes are the last one seen less the one it began with. Neither ever decreases.
create table egress_usage (
  session_id text not null references sessions (id) on delete cascade,
  day text not null,
  machine_id text not null,
  egress_start bigint not null,
  egress_last bigint not null,
  ingress_start bigint not null,
  ingress_last bigint not null,
  primary key (session_id, day, machine_id)
);
create index egress_usage_machine on egress_usage (machine_id, day desc);

-- What gateways and kernels did and refused for a session. `seq` is the order in which the nodes told it.
create table egress_log (
  seq bigint generated always as identity primary key,
  session_id text not null references sessions (id) on delete cascade,
  at timestamptz(3) not null,
  kind text not null,
  host text,
  address text,
  port integer,
  decision text not null check (decision in ('allowed', 'denied')),
  reason text not null,
  bytes_out bigint not null,
  bytes_in bigint not null,
  count bigint not null
);
create index egress_log_session on egress_log (session_id, seq desc);
create index egress_log_age on egress_log (at);

-- How far the log of a node was read.
create table node_reports (
  node_id text primary key,
  cursor text not null
);

-- Exposed ports. The ingress token is sealed, so that it can be told again; of a bearer token there is a hash alone.
create table preview_routes (
  session_id text not null references sessions (id) on delete cascade,
  port integer not null check (port between 1 and 65535),
  -- From `preview_versions`: never used twice, so that nothing of an earlier route opens a later one.
  version bigint not null,
  visibility text not null check (visibility in ('token', 'public')),
  auth text not null check (auth in ('none', 'bearer')),
  sealed_token bytea,
  token_sha256 text,
  bearer_sha256 text,
  -- Whether the call that minted the bearer token was answered: one that nobody was told is minted anew.
  is_bearer_told boolean not null default false,
  login_url text,
  primary key (session_id, port),
  check ((visibility = 'token') = (sealed_token is not null and token_sha256 is not null)),
  check ((auth = 'bearer') = (bearer_sha256 is not null))
);

create sequence preview_versions;
-- Versions of the tables of routes that nodes are sent.
create sequence preview_table_versions;
