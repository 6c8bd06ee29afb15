-- Clients of terminals and tunnels, one row each, kept up by the process that serves them. A row whose lease is over
-- says when its client left: on_pty_detach follows from the last of them. Leases are on now().
create table attachments (
  id text primary key,
  session_id text not null references sessions (id) on delete cascade,
  -- The machine it is a client of: what was attached to an earlier one is past.
  incarnation integer not null,
  kind text not null check (kind in ('pty', 'tunnel')),
  lease_until timestamptz(3) not null
);
create index attachments_session on attachments (session_id, incarnation);
create index attachments_lease on attachments (lease_until);

-- Until then some process says that an operation in the guest is in flight. On now(), like every lease.
alter table sessions add column busy_until timestamptz(3);

-- What was done and by whom. An entry is written when it begins and completed once; then nothing changes it, so that a
-- chain of digests can be laid over completed entries in the order of `seq`. No references: it outlives what it tells of.
create table audit_log (
  seq bigint generated always as identity primary key,
  id text not null unique check (id ~ '^aud_[a-z0-9]{21}$'),
  org_id text not null,
  session_id text,
  at timestamptz(3) not null,
  actor_kind text not null,
  actor_id text not null,
  action text not null,
  target text not null,
  -- 'pending' until it is completed.
  outcome text not null check (outcome in ('pending', 'ok', 'error')),
  code text,
  request_id text not null,
  ip text not null,
  meta jsonb not null
);
create index audit_log_org on audit_log (org_id, at desc, id desc);
create index audit_log_session on audit_log (session_id, at desc, id desc) where session_id is not null;
create index audit_log_age on audit_log (at);
