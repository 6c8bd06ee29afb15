-- How the session's machine runs, as the node says. Null: its machine was started before this was recorded.
alter table sessions add column isolation text;
