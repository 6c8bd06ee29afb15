-- State keys of templates: the disk of a template is sealed if that of its session was. Sealed with a data key of the row.
alter table templates
  add column kek_id text,
  add column data_key bytea,
  add column state_key bytea,
  add constraint templates_data_key
    check ((kek_id is null) = (data_key is null) and (data_key is null) = (state_key is null));
create index templates_kek on templates (kek_id) where kek_id is not null;
