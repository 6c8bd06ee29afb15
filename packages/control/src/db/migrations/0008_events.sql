-- What happened, written in the transaction that made it happen. No column refers to another table: a reference would
-- lock its row, which others hold while they wait for a session's; and events outlive what they tell of.
create table events (
  -- Order of writing. Writers of one session hold its row, so that among its events this is the order of commits.
  seq bigint generated always as identity primary key,
  id text not null unique,
  -- Place in the stream, given after the commit (events/publish.ts); null: no reader has seen it.
  position bigint unique,
  type text not null,
  created_at timestamptz(3) not null default service_now(),
  org_id text not null,
  project_id text,
  session_id text,
  data jsonb not null
);
create index events_waiting on events (seq) where position is null;
create index events_org on events (org_id, position);
create index events_session on events (session_id, position) where session_id is not null;
create index events_age on events (created_at);

-- The last place that was given. Its row is the turn of whoever gives places.
create table event_head (
  only_row boolean primary key default true check (only_row),
  position bigint not null
);
insert into event_head (position) values (0);

-- What sessions were refused, summed up until its minute is over and it becomes events. Empty text and port 0: none.
create table egress_denials (
  session_id text not null references sessions (id) on delete cascade,
  minute timestamptz not null,
  host text not null,
  address text not null,
  port integer not null,
  reason text not null,
  count bigint not null,
  primary key (session_id, minute, host, address, port, reason)
);
create index egress_denials_minute on egress_denials (minute);
