-- Variables and secrets, sealed with a data key of their session. The data key is itself sealed with a key-encryption key,
-- which is never in the database.
alter table sessions
  add column kek_id text,
  add column data_key bytea,
  add constraint sessions_data_key check ((kek_id is null) = (data_key is null));
create index sessions_kek on sessions (kek_id) where kek_id is not null;
-- Variables that a service without a key-encryption key kept unsealed.
create index sessions_unsealed on sessions (id) where env is not null;

create table sealed_values (
  session_id text not null references sessions (id) on delete cascade,
  kind text not null check (kind in ('env', 'secrets')),
  -- Names of the secrets, which records repeat.
  names text[] not null default '{}',
  sealed bytea not null,
  primary key (session_id, kind)
);

alter table checkpoints
  add column kek_id text,
  add column data_key bytea,
  add column sealed_env bytea,
  add constraint checkpoints_data_key
    check ((kek_id is null) = (data_key is null) and (data_key is null) = (sealed_env is null));
create index checkpoints_kek on checkpoints (kek_id) where kek_id is not null;
create index checkpoints_unsealed on checkpoints (id) where env is not null;
