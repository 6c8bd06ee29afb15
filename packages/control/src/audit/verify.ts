/**
 * Verifies an organisation's log in steps: first the chain, link by link with the entry of each, then all entries for those
 * that the chain lacks. Each step reads one page, so the log is never held in memory.
 */
import {
  AUDIT_FINDINGS,
  type AuditFinding,
  type AuditFindingKind,
  type AuditVerification,
  LIMITS,
} from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { invalidField } from "../http/validation.ts";
import { type HeadRow, hashOf, isHeadSealed, isLinkSealed } from "./chain.ts";
import { findHead, findLink, type LinkWithEntry, listEntriesInOrder, listLinks } from "./chain-store.ts";
import { digestOf, isSame, isSealed } from "./entry.ts";
import { type ChainDeps, hasHead } from "./extend-chain.ts";
import { type KeptHead, readKeptHeads } from "./kept-heads.ts";

/** Findings that one step lists. */
const MOST_FINDINGS = 100;
const CURSOR = /^(links|entries)\.([0-9]{1,15})$/;
const KNOWN = /^([0-9]{1,15})\.([0-9a-f]{64})$/;

/** `known`: a head that the caller has kept, as `seq.hash`. */
export interface VerifyQuery {
  cursor?: string;
  known?: string;
}

type Find = (kind: AuditFindingKind, where?: { seq?: number; entry_id?: string }) => void;

interface Step {
  auditKey: Buffer;
  orgId: string;
  head: HeadRow | undefined;
  find: Find;
}

interface Checked {
  checked: number;
  next?: string;
  waiting?: number;
  beforeChain?: number;
}

export async function verifyStep(
  deps: ChainDeps,
  orgId: string,
  { cursor, known }: VerifyQuery,
): Promise<AuditVerification> {
  const [, phase = "links", after = "0"] = readCursor(cursor);
  const seen = [(await readKeptHeads(deps.keptHeadsFile))[orgId], readKnown(known)];
  // One snapshot, so that head, links and entries belong together.
  const consistent = deps.db.transaction().setIsolationLevel("repeatable read").setAccessMode("read only");
  return await consistent.execute(async (tx) => {
    const { findings, find, more } = collectFindings();
    const head = await findHead(tx, orgId);
    const step = { auditKey: deps.auditKey, orgId, head, find };
    if (cursor === undefined) await checkHeads(tx, step, seen);
    const { checked, next, waiting, beforeChain } =
      phase === "links"
        ? await verifyLinks(tx, step, Number(after))
        : await verifyEntries(tx, step, Number(after));
    return {
      findings,
      ...(more() > 0 && { more_findings: more() }),
      checked,
      waiting: waiting ?? 0,
      before_chain: beforeChain ?? 0,
      ...(head && endsOf(head)),
      ...(next !== undefined && { next_cursor: Buffer.from(next).toString("base64url") }),
    };
  });
}

function readCursor(cursor: string | undefined): string[] {
  if (cursor === undefined) return [];
  const parts = CURSOR.exec(Buffer.from(cursor, "base64url").toString("latin1"));
  if (!parts) throw invalidField("cursor", "must be the next_cursor of an earlier answer, unchanged");
  return parts;
}

function readKnown(known: string | undefined): Pick<KeptHead, "seq" | "hash"> | undefined {
  if (known === undefined) return undefined;
  const parts = KNOWN.exec(known);
  if (!parts)
    throw invalidField("known", "must be the seq and the hash of an earlier head, with a dot between");
  return { seq: Number(parts[1]), hash: parts[2] as string };
}

function collectFindings() {
  const findings: AuditFinding[] = [];
  let more = 0;
  const find: Find = (kind, where = {}) => {
    if (findings.length < MOST_FINDINGS) findings.push({ kind, message: AUDIT_FINDINGS[kind], ...where });
    else more += 1;
  };
  return { findings, find, more: () => more };
}

function endsOf({ seq, hash, at, anchor_seq, anchor_hash, anchor_at }: HeadRow) {
  return {
    anchor: { seq: anchor_seq, hash: anchor_hash.toString("hex"), at: anchor_at.toISOString() },
    head: { seq, hash: hash.toString("hex"), at: at.toISOString() },
  };
}

async function checkHeads(
  tx: Queries,
  { auditKey, head, find }: Step,
  seen: (Pick<KeptHead, "seq" | "hash"> | undefined)[],
): Promise<void> {
  if (head && !isHeadSealed(auditKey, head)) find("head_forged");
  for (const one of seen)
    if (one && !(head && (await hasHead(tx, head, one)))) find("chain_shortened", { seq: one.seq });
}

/** Checks a page of links: their order, their hashes and seals, and the entry of each. */
async function verifyLinks(tx: Queries, step: Step, after: number): Promise<Checked> {
  const { head, orgId, find } = step;
  const anchor = head ? { seq: head.anchor_seq, hash: head.anchor_hash } : { seq: 0, hash: Buffer.alloc(32) };
  const rows = await listLinks(tx, orgId, { after, limit: LIMITS.auditVerifyStep });
  let previous = await previousOf(tx, orgId, { after, anchor });
  for (const row of rows) {
    const { link } = row;
    if (link.seq <= anchor.seq || link.seq > (head?.seq ?? 0)) {
      find("link_put_in", { seq: link.seq, entry_id: link.entry_id });
      continue;
    }
    if (link.seq !== previous.seq + 1) find("link_removed", { seq: link.seq });
    else if (!isSame(link.hash, hashOf(link, previous.hash)) || !isLinkSealed(step.auditKey, link))
      find("link_changed", { seq: link.seq, entry_id: link.entry_id });
    previous = { seq: link.seq, hash: link.hash };
    checkEntry(step, row);
  }
  const checked = rows.length;
  if (checked === LIMITS.auditVerifyStep) return { checked, next: `links.${rows.at(-1)?.link.seq}` };
  if (head && previous.seq !== head.seq) find("end_removed", { seq: previous.seq });
  else if (head && !isSame(previous.hash, head.hash)) find("head_forged");
  return { checked, next: "entries.0" };
}

/** The link before a page. The retention may have removed it since the page before: then the anchor. */
async function previousOf(
  tx: Queries,
  orgId: string,
  { after, anchor }: { after: number; anchor: { seq: number; hash: Buffer } },
): Promise<{ seq: number; hash: Buffer }> {
  if (after <= anchor.seq) return anchor;
  const link = await findLink(tx, orgId, after);
  return { seq: after, hash: link?.hash ?? Buffer.alloc(32) };
}

function checkEntry({ auditKey, orgId, find }: Step, { link, entry, earlier }: LinkWithEntry): void {
  const where = { seq: link.seq, entry_id: link.entry_id };
  // The mark of what the chain has of an entry is under no seal. One that was taken back gets the entry linked again.
  const isFirst = earlier.length === 0 || (link.kind === "end" && earlier.join() === "start");
  if (!isFirst) find("entry_linked_twice", where);
  if (entry?.org_id !== orgId) {
    find("entry_removed", where);
    return;
  }
  const digest = digestOf(entry, link.kind === "start" ? "start" : "whole");
  if (!isSame(digest, link.digest) || !isSealed(auditKey, entry)) find("entry_changed", where);
}

/** Checks a page of entries for those that are not in the chain. */
async function verifyEntries(tx: Queries, step: Step, after: number): Promise<Checked> {
  const { auditKey, orgId, head, find } = step;
  const rows = await listEntriesInOrder(tx, orgId, { after, limit: LIMITS.auditVerifyStep });
  // A forged head says nothing about which entries are older than the chain.
  const unsealedUntil = head && isHeadSealed(auditKey, head) ? head.unsealed_until : 0;
  let waiting = 0;
  let beforeChain = 0;
  for (const row of rows) {
    if (row.is_linked) {
      // It waits to be linked again.
      if (row.linked === "no") find("entry_linked_twice", { entry_id: row.id });
      continue;
    }
    if (row.seal === null && row.seq <= unsealedUntil) beforeChain += 1;
    else if (!isSealed(auditKey, row)) find("entry_put_in", { entry_id: row.id });
    else if (row.linked === "no" && !row.is_late) waiting += 1;
    else find("entry_unlinked", { entry_id: row.id });
  }
  const isLast = rows.length < LIMITS.auditVerifyStep;
  const next = isLast ? {} : { next: `entries.${rows.at(-1)?.seq}` };
  return { checked: rows.length, waiting, beforeChain, ...next };
}
