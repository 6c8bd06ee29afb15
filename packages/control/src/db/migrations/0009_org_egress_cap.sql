alter table orgs
  -- Bytes that may leave the organisation's sessions in a UTC day, as it chose; 0: no cap; null: the operator's default.
  add column egress_cap_bytes bigint check (egress_cap_bytes >= 0),
  -- The day (UTC, YYYY-MM-DD) on which they had sent that much: until its end none of them starts or runs.
  add column egress_capped_on text;

-- What all sessions of an organisation sent on a day.
create index egress_usage_day on egress_usage (day);
