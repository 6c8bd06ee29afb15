-- Entries of one instant are told in the order in which they were written, which their random ids do not say.
drop index audit_log_org;
drop index audit_log_session;
create index audit_log_org on audit_log (org_id, at desc, seq desc);
create index audit_log_session on audit_log (session_id, at desc, seq desc) where session_id is not null;
