-- A process that keeps the session from being idle may run in it: it was started, or came with a saved state. Never
-- taken back: whether one runs is asked of the machine when the session would be idle.
alter table sessions add column may_keep_alive boolean not null default false;
