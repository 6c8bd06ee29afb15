-- Saved states that callers keep. The id of a checkpoint, or of a template's version, is the name of its snapshot.
create table checkpoints (
  id text primary key check (id ~ '^chk_[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  project_id text references projects (id),
  -- The session it is an instant of. No reference: a checkpoint outlives the session's row.
  session_id text not null,
  name text,
  labels jsonb,
  size_bytes bigint not null,
  created_at timestamptz(3) not null default now(),

  -- What a session that is started from it takes over.
  size text not null,
  template text not null,
  template_version text,
  baseline text,
  env jsonb,
  egress jsonb not null,
  no_sudo boolean not null
);

create unique index checkpoints_name on checkpoints (session_id, name) where name is not null;
create index checkpoints_org on checkpoints (org_id, created_at desc, id desc);
create index checkpoints_session on checkpoints (session_id, created_at desc, id desc);

-- Names under which an organisation saved templates. They stay after the last version is deleted, so that no version
-- number is ever given twice.
create table template_names (
  org_id text not null references orgs (id) on delete cascade,
  name text not null,
  last_version integer not null check (last_version >= 1),
  primary key (org_id, name)
);

-- One row per version that can be used.
create table templates (
  id text primary key check (id ~ '^tpl_[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  project_id text references projects (id),
  name text not null,
  version integer not null check (version >= 1),
  description text,
  -- The session it was saved from.
  session_id text not null,
  has_memory boolean not null,
  created_at timestamptz(3) not null default now(),

  -- What a session that is started from it takes over.
  size text not null,
  baseline text not null,
  no_sudo boolean not null,

  unique (org_id, name, version)
);

-- The template of the node that the session's files go back to, where it is not the one in `template`.
alter table sessions add column baseline text;
