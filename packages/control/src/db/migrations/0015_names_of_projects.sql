-- The name of a session is one of its project: a key that is bound to a project is not told what others use.
drop index sessions_name;
create unique index sessions_name on sessions (org_id, coalesce(project_id, ''), name)
  where name is not null and state <> 'destroyed';
