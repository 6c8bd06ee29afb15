-- Whether its objects are in a directory of this host, as those of the warm tier, and not in the object store.
alter table archive_spaces add column is_local boolean not null default false;
