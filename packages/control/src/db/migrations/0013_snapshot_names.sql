-- Snapshots that this database has had the node asked for, written before it is asked: what a node has besides belongs
-- to another database, or to a later time of this one.
create table snapshot_names (
  id text primary key,
  named_at timestamptz not null default now()
);
insert into snapshot_names (id)
  select snapshot_id from sessions where snapshot_id is not null
  union select origin_snapshot_id from sessions where origin_snapshot_id is not null
  union select op_input ->> 'snapshot_id' from sessions where op_input ->> 'snapshot_id' is not null
  union select id from checkpoints
  union select id from templates;
