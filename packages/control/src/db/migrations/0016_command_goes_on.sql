-- The only command of a session that was paused under it goes on since the wake, and nobody listens: its guest is asked for
-- its end.
alter table sessions add column command_goes_on boolean not null default false;
create index sessions_command_goes_on on sessions (id) where command_goes_on and state = 'live';
