-- Whether the memory of a session or checkpoint may contain secrets, its own or those of the session that it comes from: it is
-- then not made into a template.
alter table sessions add column may_hold_secrets boolean not null default false;
alter table checkpoints add column may_hold_secrets boolean not null default false;
update sessions set may_hold_secrets = true
  where id in (select session_id from sealed_values where kind = 'secrets');
update checkpoints set may_hold_secrets = true
  where session_id in (select id from sessions where may_hold_secrets);
