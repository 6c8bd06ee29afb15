-- The time that the request asked for; null if it named none. It tells a request that is sent again from another one.
alter table connections add column asked_ttl_s integer;
