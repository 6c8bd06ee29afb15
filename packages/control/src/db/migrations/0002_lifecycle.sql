-- The instant that every deadline is measured by. A function of its own, so that a test can move this clock alone;
-- leases of processes stay on now().
create function service_now() returns timestamptz language sql stable as 'select now()';

alter table sessions
  alter column created_at set default service_now(),
  alter column last_active_at set default service_now(),
  alter column state_changed_at set default service_now(),

  -- While paused, or for good: since when.
  add column paused_at timestamptz(3),
  -- When the session last came back from a pause; null: never was paused.
  add column resumed_at timestamptz(3),
  add column wake_at timestamptz(3),
  -- Set once a wake at wake_at was refused: when to try again, and when to give up.
  add column wake_retry_at timestamptz(3),
  add column wake_drop_at timestamptz(3),
  -- Not after the next instant at which a clock of the session may be due. Too early costs a look, too late is a bug.
  add column due_at timestamptz(3),

  -- The operation under way, its own name, what it was asked for, and the lease of the process that runs it.
  add column op text check (
    op in ('pause', 'wake', 'restore', 'checkpoint', 'fork', 'save_template', 'settle')
  ),
  add column op_id text,
  add column op_input jsonb,
  add column op_claimed_until timestamptz(3),

  -- The saved state: what a paused session wakes from, while live the generation before.
  add column snapshot_id text,
  add column snapshot_bytes bigint,
  -- What the first machine is loaded from; null: the baseline of the template.
  add column origin_snapshot_id text,
  add column origin_checkpoint_id text,
  add column parent_session_id text,
  add column template_version text,

  add check ((op is null) = (op_id is null) and (op is null) = (op_input is null)),
  add check (state <> 'paused' or (snapshot_id is not null and paused_at is not null));

-- Sessions from before this migration have clocks as well.
update sessions set due_at = now() where state = 'live';

drop index sessions_active;
-- A session that is waking up holds its slot already.
create index sessions_active on sessions (org_id, key_id)
  where state in ('creating', 'live') or (state = 'paused' and op in ('wake', 'restore'));
create index sessions_due on sessions (due_at) where due_at is not null;
create index sessions_operations on sessions (op_claimed_until) where op is not null and state <> 'destroyed';
create index sessions_snapshots on sessions (snapshot_id) where snapshot_id is not null;
create index sessions_origins on sessions (origin_snapshot_id) where origin_snapshot_id is not null;
