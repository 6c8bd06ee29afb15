-- Credentials for registries of container images. The secret is sealed with a data key of the row.
create table registry_credentials (
  id text primary key check (id ~ '^rcr_[a-z0-9]{21}$'),
  org_id text not null references orgs (id) on delete cascade,
  -- The project of the key that made it; null: of the organisation itself.
  project_id text references projects (id),
  name text not null,
  registry_host text not null,
  username text not null,
  kek_id text not null,
  data_key bytea not null,
  sealed bytea not null,
  created_at timestamptz(3) not null default now()
);
create unique index registry_credentials_name on registry_credentials (org_id, coalesce(project_id, ''), name);
create index registry_credentials_kek on registry_credentials (kek_id);
