-- Uses of Connections that have no entry in the audit log yet, counted by minute.
create table connection_uses (
  session_id text not null references sessions (id) on delete cascade,
  name text not null,
  minute timestamptz not null,
  -- Requests that carried the credential, answers that did, and requests that were refused.
  sent bigint not null,
  reflected bigint not null,
  refused bigint not null,
  primary key (session_id, name, minute)
);
create index connection_uses_minute on connection_uses (minute);
