-- Scoped tokens. The digest is also the handle by which a token is revoked.
create table session_tokens (
  digest bytea primary key,
  org_id text not null references orgs (id) on delete cascade,
  session_id text not null references sessions (id) on delete cascade,
  -- The key that minted it.
  key_id text references api_keys (id) on delete set null,
  capabilities text[] not null,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3) not null,
  revoked_at timestamptz(3),
  last_used_at timestamptz(3)
);
create index session_tokens_session on session_tokens (session_id);
create index session_tokens_expiry on session_tokens (expires_at);
