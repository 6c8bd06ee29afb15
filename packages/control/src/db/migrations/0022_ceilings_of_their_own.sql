-- Null: the organisation has the ceiling that the service is configured with. So far every organisation had a number,
-- 10 unless an operator wrote another one.
alter table orgs alter column concurrent_sessions drop not null;
update orgs set concurrent_sessions = null where concurrent_sessions = 10;
