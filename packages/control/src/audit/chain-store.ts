/** SQL of the chain: its links, its heads, and which entries are not in it yet. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import type { HeadRow, LinkRow } from "./chain.ts";
import type { AuditRow } from "./store.ts";

/** Advisory lock of the one process that extends or shortens chains. */
const CHAIN_LOCK = 7_483_920_119;

/** Whether this transaction is the one that may change chains, until it ends. */
export async function lockChains(tx: Queries): Promise<boolean> {
  const { rows } = await sql<{
    locked: boolean;
  }>`select pg_try_advisory_xact_lock(${CHAIN_LOCK}) as locked`.execute(tx);
  return rows[0]?.locked === true;
}

/** Committed entries that the chain lacks, or whose completion it lacks, in the order of writing. */
export async function listUnlinked(tx: Queries, limit: number): Promise<AuditRow[]> {
  return await tx
    .selectFrom("audit_log")
    .selectAll()
    .where(sql<boolean>`(linked = 'no' or (linked = 'start' and outcome <> 'pending'))`)
    .orderBy("seq")
    .limit(limit)
    .execute();
}

export async function markLinked(
  tx: Queries,
  marks: readonly { id: string; linked: AuditRow["linked"] }[],
): Promise<void> {
  await sql`update audit_log set linked = done.linked
    from unnest(
      ${marks.map(({ id }) => id)}::text[],
      ${marks.map(({ linked }) => linked)}::text[]
    ) as done (id, linked)
    where audit_log.id = done.id`.execute(tx);
}

export async function readChainTime(tx: Queries): Promise<Date> {
  const { now } = await tx
    .selectNoFrom(sql<Date>`date_trunc('milliseconds', service_now())`.as("now"))
    .executeTakeFirstOrThrow();
  return now;
}

export async function findHead(db: Queries, orgId: string): Promise<HeadRow | undefined> {
  return await db.selectFrom("audit_heads").selectAll().where("org_id", "=", orgId).executeTakeFirst();
}

export async function listHeads(db: Queries): Promise<HeadRow[]> {
  return await db.selectFrom("audit_heads").selectAll().orderBy("org_id").execute();
}

/** The last entry of an organisation that has no seal; 0: none. */
export async function findLastUnsealed(db: Queries, orgId: string): Promise<number> {
  const { seq } = await db
    .selectFrom("audit_log")
    .select(sql<number>`coalesce(max(seq), 0)::bigint`.as("seq"))
    .where("org_id", "=", orgId)
    .where("seal", "is", null)
    .executeTakeFirstOrThrow();
  return seq;
}

export async function saveHead(tx: Queries, head: HeadRow): Promise<void> {
  const { org_id: _id, ...columns } = head;
  await tx
    .insertInto("audit_heads")
    .values(head)
    .onConflict((conflict) => conflict.column("org_id").doUpdateSet(columns))
    .execute();
}

export async function insertLinks(tx: Queries, links: readonly LinkRow[]): Promise<void> {
  if (links.length > 0)
    await tx
      .insertInto("audit_links")
      .values([...links])
      .execute();
}

export async function findLink(db: Queries, orgId: string, seq: number): Promise<LinkRow | undefined> {
  return await db
    .selectFrom("audit_links")
    .selectAll()
    .where("org_id", "=", orgId)
    .where("seq", "=", seq)
    .executeTakeFirst();
}

export interface LinkWithEntry {
  link: LinkRow;
  entry: AuditRow | null;
  /** Kinds of the links before it that are of the same entry. */
  earlier: LinkRow["kind"][];
}

/** Links after `seq`, each with its entry. */
export async function listLinks(
  db: Queries,
  orgId: string,
  { after, limit }: { after: number; limit: number },
): Promise<LinkWithEntry[]> {
  const links = await db
    .selectFrom("audit_links")
    .selectAll()
    .where("org_id", "=", orgId)
    .where("seq", ">", after)
    .orderBy("seq")
    .limit(limit)
    .execute();
  const ids = [...new Set(links.map(({ entry_id }) => entry_id))];
  const entries = ids.length
    ? await db.selectFrom("audit_log").selectAll().where("id", "in", ids).execute()
    : [];
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const linksOf = Map.groupBy(await listLinksOf(db, orgId, ids), ({ entry_id: id }) => id);
  return links.map((link) => {
    const earlier = (linksOf.get(link.entry_id) ?? []).filter(({ seq }) => seq < link.seq);
    return { link, entry: byId.get(link.entry_id) ?? null, earlier: earlier.map(({ kind }) => kind) };
  });
}

async function listLinksOf(
  db: Queries,
  orgId: string,
  entryIds: readonly string[],
): Promise<Pick<LinkRow, "entry_id" | "seq" | "kind">[]> {
  if (entryIds.length === 0) return [];
  return await db
    .selectFrom("audit_links")
    .select(["entry_id", "seq", "kind"])
    .where("org_id", "=", orgId)
    .where("entry_id", "in", entryIds)
    .execute();
}

/** Entries after `seq` in the order of writing, and whether the chain has each. */
export async function listEntriesInOrder(
  db: Queries,
  orgId: string,
  { after, limit }: { after: number; limit: number },
): Promise<(AuditRow & { is_linked: boolean; is_late: boolean })[]> {
  return await db
    .selectFrom("audit_log")
    .selectAll()
    .select(sql<boolean>`exists (select from audit_links where entry_id = audit_log.id)`.as("is_linked"))
    .select(sql<boolean>`written_at < now() - interval '10 minutes'`.as("is_late"))
    .where("org_id", "=", orgId)
    .where("seq", ">", after)
    .orderBy("seq")
    .limit(limit)
    .execute();
}

/** The newest link that is older than `seconds`, of the first `limit` links. */
export async function findLastOldLink(
  tx: Queries,
  orgId: string,
  { after, seconds, limit }: { after: number; seconds: number; limit: number },
): Promise<LinkRow | undefined> {
  return await tx
    .selectFrom("audit_links")
    .selectAll()
    .where("org_id", "=", orgId)
    .where("seq", ">", after)
    .where("seq", "<=", after + limit)
    .where("linked_at", "<", sql<Date>`service_now() - make_interval(secs => ${seconds})`)
    .orderBy("seq", "desc")
    .limit(1)
    .executeTakeFirst();
}

/** Removes links up to `seq`, and the entries that no later link refers to. */
export async function removeLinksUpTo(tx: Queries, orgId: string, seq: number): Promise<void> {
  await sql`with gone as (
      delete from audit_links where org_id = ${orgId} and seq <= ${seq} returning entry_id
    )
    delete from audit_log using gone
    where audit_log.id = gone.entry_id and not exists (
      select from audit_links as later
      where later.entry_id = gone.entry_id and later.org_id = ${orgId} and later.seq > ${seq}
    )`.execute(tx);
}

/** Removes old entries of organisations that have no chain, because nothing was written since versions without one. */
export async function removeOldWithoutChain(db: Queries, seconds: number): Promise<void> {
  await sql`delete from audit_log
    where seal is null and at < service_now() - make_interval(secs => ${seconds})
      and not exists (select from audit_heads where audit_heads.org_id = audit_log.org_id)`.execute(db);
}

/** Removes old entries that are not in the chain: those of versions without one, and those that it refused. */
export async function removeOldUnlinked(
  tx: Queries,
  { org_id: orgId, unsealed_until: until }: HeadRow,
  seconds: number,
): Promise<void> {
  await sql`delete from audit_log
    where org_id = ${orgId} and (seal is null and seq <= ${until} or linked = 'refused')
      and greatest(at, written_at) < service_now() - make_interval(secs => ${seconds})`.execute(tx);
}
