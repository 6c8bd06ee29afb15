-- Builds of an image that a session has written: the session, which may be gone by now, and the directory of the layout.
alter table template_builds
  add column session_id text,
  add column layout text,
  add constraint template_builds_layout check ((session_id is null) = (layout is null));
