/**
 * Adds entries to their organisation's chain once they are committed. One process at a time does it, in the background: if
 * writers did, all changes of an organisation would wait for each other.
 */
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { AuditDeps } from "./append.ts";
import { firstHead, type HeadRow, isHeadSealed, type LinkRow, newLink, sealedHead } from "./chain.ts";
import {
  findHead,
  findLastUnsealed,
  findLink,
  insertLinks,
  listHeads,
  listUnlinked,
  lockChains,
  markLinked,
  readChainTime,
  saveHead,
} from "./chain-store.ts";
import { digestOf, isSealed } from "./entry.ts";
import { type KeptHead, readKeptHeads, writeKeptHeads } from "./kept-heads.ts";
import type { AuditRow } from "./store.ts";

export interface ChainDeps extends AuditDeps {
  db: Database;
  /** The file of heads outside of the database. */
  keptHeadsFile: string;
  log: Log;
}

const AT_ONCE = 500;

export async function extendChains(deps: ChainDeps): Promise<void> {
  for (let linked = AT_ONCE; linked === AT_ONCE; ) linked = await extendOnce(deps);
}

/** Links one batch. Returns the number of entries, 0 if none waits or another process does it. */
async function extendOnce(deps: ChainDeps): Promise<number> {
  // Mostly none waits: one statement finds that out, and a transaction with its lock takes four.
  if ((await listUnlinked(deps.db, 1)).length === 0) return 0;
  return await deps.db.transaction().execute(async (tx) => {
    if (!(await lockChains(tx))) return 0;
    const waiting = await listUnlinked(tx, AT_ONCE);
    const byOrg = Map.groupBy(waiting, ({ org_id: orgId }) => orgId);
    for (const [orgId, rows] of byOrg) await extendOne(deps, tx, orgId, rows);
    return waiting.length;
  });
}

async function extendOne(deps: ChainDeps, tx: Queries, orgId: string, rows: AuditRow[]): Promise<void> {
  const now = await readChainTime(tx);
  const found = await findHead(tx, orgId);
  const head = found ?? firstHead(orgId, now, await findLastUnsealed(tx, orgId));
  const links: LinkRow[] = [];
  const marks: { id: string; linked: AuditRow["linked"] }[] = [];
  let { seq, hash } = head;
  for (const row of rows) {
    // Not put into the chain, which would make a foreign row look like one of the service.
    if (!isSealed(deps.auditKey, row)) {
      deps.log.error({ audit_id: row.id, org_id: orgId }, "the service did not write this audit entry");
      marks.push({ id: row.id, linked: "refused" });
      continue;
    }
    const kind = row.outcome === "pending" ? "start" : row.linked === "start" ? "end" : "entry";
    const digest = digestOf(row, kind === "start" ? "start" : "whole");
    const content = { org_id: orgId, seq: seq + 1, entry_id: row.id, kind, linked_at: now, digest } as const;
    const link = newLink(deps.auditKey, content, hash);
    links.push(link);
    ({ seq, hash } = link);
    marks.push({ id: row.id, linked: kind === "start" ? "start" : "whole" });
  }
  await insertLinks(tx, links);
  await markLinked(tx, marks);
  if (links.length === 0 && found) return;
  const next = sealedHead(deps.auditKey, { ...head, seq, hash, at: now });
  // A new seal would make somebody else's anchor genuine. With the old one a verification finds the head from now on.
  const isForged = found !== undefined && !isHeadSealed(deps.auditKey, found);
  if (isForged) deps.log.error({ org_id: orgId }, "the service did not write this head of the audit log");
  await saveHead(tx, isForged ? { ...next, seal: found.seal } : next);
}

/**
 * Writes the present heads to the file. Of a chain that lacks the head in the file, and of a head that the service did not
 * write, the one in the file is kept as evidence.
 */
export async function keepHeads({ db, auditKey, keptHeadsFile: file, log }: ChainDeps): Promise<void> {
  const known = await readKeptHeads(file);
  const kept: Record<string, KeptHead> = { ...known };
  let isChanged = false;
  for (const head of await listHeads(db)) {
    const before = known[head.org_id];
    if (before?.seq === head.seq && before.hash === head.hash.toString("hex")) continue;
    if (!isHeadSealed(auditKey, head)) continue;
    if (before && !(await hasHead(db, head, before))) {
      log.error(
        { org_id: head.org_id, seq: before.seq },
        "the audit log lacks the head that was seen before",
      );
      continue;
    }
    kept[head.org_id] = { seq: head.seq, hash: head.hash.toString("hex"), at: head.at.toISOString() };
    isChanged = true;
  }
  if (isChanged) await writeKeptHeads(file, kept);
}

/** Whether the chain has a head that was seen before, or has had it before its retention. */
export async function hasHead(
  db: Queries,
  head: HeadRow,
  { seq, hash }: Pick<KeptHead, "seq" | "hash">,
): Promise<boolean> {
  if (seq > head.seq) return false;
  if (seq < head.anchor_seq || seq === 0) return true;
  if (seq === head.anchor_seq) return head.anchor_hash.toString("hex") === hash;
  const link = await findLink(db, head.org_id, seq);
  return link?.hash.toString("hex") === hash;
}
