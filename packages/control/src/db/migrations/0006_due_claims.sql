-- Who took the session last to look at its clocks. Instants alone repeat: two looks within a millisecond set the same
-- due_at, and the first would overwrite what the second was told by a change between them.
alter table sessions add column due_claim uuid;
