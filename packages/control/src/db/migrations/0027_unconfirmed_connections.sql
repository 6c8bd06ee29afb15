-- Whether nobody was told yet that the Connection is in force: the same request again then waits for it.
alter table connections add column unconfirmed boolean not null default false;
