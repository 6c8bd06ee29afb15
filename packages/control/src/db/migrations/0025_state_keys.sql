-- State keys: each seals the saved memory and the disk of a session that may hold secrets, and of what was saved or forked from
-- it. Sealed with the data key of the row. Null: the session holds no secrets, or was made by an earlier version.
alter table sessions
  add column state_key bytea,
  add constraint sessions_state_key check (state_key is null or data_key is not null);
alter table checkpoints
  add column state_key bytea,
  drop constraint checkpoints_data_key,
  add constraint checkpoints_data_key
    check ((kek_id is null) = (data_key is null) and (data_key is null) = (sealed_env is null and state_key is null));
