-- How long the only command of a paused session may still run: `destroy_after` is counted anew from its wake.
alter table sessions add column command_left_ms bigint;
