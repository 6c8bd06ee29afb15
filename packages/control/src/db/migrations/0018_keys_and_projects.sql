-- What a key may do and what a list shows of it; projects that are deleted keep their rows, which sessions refer to.
alter table api_keys
  add column role text not null default 'full' check (role in ('full', 'read')),
  -- The first characters of the key; null for a key of an earlier version that was not used since.
  add column prefix text,
  add column last_used_at timestamptz(3);
create index api_keys_org on api_keys (org_id) where revoked_at is null;

alter table projects
  add column labels jsonb,
  add column deleted_at timestamptz(3);
alter table projects drop constraint projects_org_id_name_key;
create unique index projects_name on projects (org_id, name) where deleted_at is null;
