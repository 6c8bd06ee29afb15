-- Volumes: disks that outlive sessions.
create table volumes (
  id text primary key check (id ~ '^vol_[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  project_id text references projects (id),
  size_gb integer not null check (size_gb >= 1),
  -- Only a `ready` one is shown: the node does not have the others yet, or not any more.
  state text not null default 'making' check (state in ('making', 'ready', 'deleting')),
  created_at timestamptz(3) not null default now(),
  -- The session that has it, from its create until nothing of its machine is left. No reference: a session's row may go first.
  session_id text unique,
  last_saved_at timestamptz(3)
);
create index volumes_org on volumes (org_id, created_at desc, id desc);
create index volumes_unfinished on volumes (created_at) where state <> 'ready';

-- The volume of the session, and its size when the session was made. They stay in the history of ended sessions.
alter table sessions
  add column volume_id text,
  add column volume_gb integer,
  add constraint sessions_volume check ((volume_id is null) = (volume_gb is null));
