-- The audit log gets more entries than commands, and becomes a chain of digests (docs/guide/audit.md).
alter table audit_log
  drop constraint audit_log_outcome_check,
  add constraint audit_log_outcome_check check (outcome in ('pending', 'ok', 'error', 'denied')),
  -- Digest of the row under a key outside of the database; null: of a version without a chain.
  add column seal bytea,
  -- What the chain has of the row: 'start' until a pending row is complete; 'refused' if its seal is wrong. Rows of
  -- versions without a chain stay outside of it.
  add column linked text not null default 'whole' check (linked in ('no', 'start', 'whole', 'refused')),
  add column written_at timestamptz(3) not null default now();
alter table audit_log alter column linked set default 'no';
create index audit_log_unlinked on audit_log (seq)
  where linked = 'no' or (linked = 'start' and outcome <> 'pending');
create index audit_log_org_seq on audit_log (org_id, seq);
create index audit_log_target on audit_log (org_id, target, at desc, seq desc);
create index audit_log_actor on audit_log (org_id, actor_id, at desc, seq desc);

-- One chain for each organisation. No references: links outlive what they tell of until the retention removes both.
create table audit_links (
  org_id text not null,
  seq bigint not null,
  entry_id text not null,
  -- 'entry': a complete entry; 'start': one that was pending; 'end': its completion.
  kind text not null check (kind in ('entry', 'start', 'end')),
  linked_at timestamptz(3) not null,
  digest bytea not null,
  -- Over all of the above and the hash of the link before.
  hash bytea not null,
  -- Digest of the hash under the key.
  seal bytea not null,
  primary key (org_id, seq)
);
create index audit_links_entry on audit_links (entry_id);

-- Both ends of each chain: the newest link, and the last one that the retention removed.
create table audit_heads (
  org_id text primary key,
  seq bigint not null,
  hash bytea not null,
  at timestamptz(3) not null,
  anchor_seq bigint not null,
  anchor_hash bytea not null,
  anchor_at timestamptz(3) not null,
  -- Rows without a seal up to this `seq` are of versions without a chain.
  unsealed_until bigint not null,
  seal bytea not null
);
