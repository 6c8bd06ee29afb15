-- How long the request that binds the Connection is certainly at work; null: it was answered. An equal request waits for it, and
-- completes what one that was not answered has begun.
alter table connections add column bind_claimed_until timestamptz(3);
