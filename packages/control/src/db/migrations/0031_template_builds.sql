-- Builds: versions of templates that the node makes of container images. One that is ready has a row in `templates` as well.
create table template_builds (
  id text primary key check (id ~ '^tpl_[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  project_id text references projects (id),
  seq bigint generated always as identity,
  name text not null,
  version integer not null check (version >= 1),
  description text,
  -- The image in full.
  reference text not null,
  -- The project whose credentials the registry gets; null: those of the organisation itself.
  credentials_of text references projects (id),
  sizes text[] not null,
  state text not null default 'queued' check (state in ('queued', 'building', 'ready', 'failed')),
  created_at timestamptz(3) not null default now(),
  -- How often the node has begun it.
  attempts integer not null default 0,
  -- When the attempt began, and the earliest time of the next one.
  begun_at timestamptz(3),
  not_before timestamptz(3),
  -- Until then the process that follows it counts as alive.
  claimed_until timestamptz(3),
  progress jsonb,
  error text,
  -- Its last lines, once it has ended.
  log jsonb,
  unique (org_id, name, version),
  constraint template_builds_error check ((error is not null) = (state = 'failed'))
);
create unique index template_builds_unfinished on template_builds (org_id, coalesce(project_id, ''), name)
  where state in ('queued', 'building');
create index template_builds_queue on template_builds (seq) where state in ('queued', 'building');

alter table templates
  alter column session_id drop not null,
  -- Of a template that was made of an image: the image with its digest, and the sizes that were baked.
  add column source_image text,
  add column sizes text[],
  add constraint templates_source check ((session_id is null) = (source_image is not null) and (source_image is null) = (sizes is null));
