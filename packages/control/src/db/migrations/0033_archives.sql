-- Archives: saved states that are kept in the object store, too (docs/design/cold-tier.md). No row, no archive: its key is here alone.

-- Archives of one space share chunks. Its secret is the data key of the row.
create table archive_spaces (
  id text primary key,
  -- An organisation, or 'service' for baselines, which belong to no organisation.
  org_id text not null,
  -- The session whose states it has, or 'baselines'.
  owner text not null unique,
  kek_id text not null,
  data_key bytea not null,
  -- Until then a sweep removes objects, and nothing may be packed into it.
  swept_until timestamptz(3)
);
create index archive_spaces_kek on archive_spaces (kek_id);

create table archives (
  id text primary key,
  org_id text not null,
  project_id text,
  space_id text not null references archive_spaces (id),
  kind text not null check (kind in ('pause', 'checkpoint', 'template', 'baseline')),
  -- The snapshot that it is of, which has one archive at most; its base is that of another archive.
  snapshot_id text not null unique,
  -- The session that the state was saved from; null: it is a baseline.
  session_id text,
  -- Rows are loaded from a backup in any order.
  base_archive text references archives (id) deferrable initially deferred,
  -- Number of bases below it.
  depth integer not null default 0,
  -- The baseline that the state was made from, for a base that is not on the node any more.
  baseline_id text,
  state text not null default 'pending' check (state in ('pending', 'complete', 'failed')),
  created_at timestamptz(3) not null default now(),
  -- How often packing has begun, and how often since the row became pending.
  attempt integer not null default 0,
  tries integer not null default 0,
  failed_at timestamptz(3),
  error text,
  kek_id text not null,
  data_key bytea not null,
  -- Names of the object with the contents, and of all chunks, 32 bytes each.
  contents bytea,
  chunks bytea,
  differing_bytes bigint,
  stored_bytes bigint,
  uploaded_at timestamptz(3),
  -- No node has the state.
  is_cold boolean not null default false,
  constraint archives_session check ((session_id is null) = (kind = 'baseline')),
  constraint archives_complete check ((state = 'complete') = (contents is not null and chunks is not null and uploaded_at is not null)),
  constraint archives_error check ((error is not null) = (state = 'failed'))
);
create index archives_of_session on archives (session_id);
create index archives_of_space on archives (space_id);
create index archives_of_base on archives (base_archive) where base_archive is not null;
create index archives_unfinished on archives (created_at) where state <> 'complete';
create index archives_kek on archives (kek_id);

alter table sessions
  -- Why a pause was refused, for the record of a session that is live still.
  add column pause_detail text;
