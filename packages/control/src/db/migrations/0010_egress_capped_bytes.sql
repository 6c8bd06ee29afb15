alter table sessions
  -- The cap that was reached on `egress_capped_on`. Under it nothing more leaves until the day ends, also where a packet
  -- that was too large left some bytes unused.
  add column egress_capped_bytes bigint;
