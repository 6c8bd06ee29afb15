/**
 * The chain of digests over an organisation's entries. Pure.
 *
 * Hazard: who can write to the database can change the log. Against that each link holds the digest of an entry, and a hash
 * over itself and the link before. Links, heads and entries are sealed with a key that is not in the database, so none can
 * be made anew. What a seal cannot show is that a whole end of the chain is gone together with its head: for this the head
 * is also kept in a file (kept-heads.ts).
 */
import { createHash } from "node:crypto";
import type { Selectable } from "kysely";
import type { AuditHeadTable, AuditLinkTable } from "../db/tables.ts";
import { isSame, sealText } from "./entry.ts";

export type LinkRow = Selectable<AuditLinkTable>;
export type HeadRow = Selectable<AuditHeadTable>;

/** The hash before the first link of a chain. */
export const NO_HASH = Buffer.alloc(32);

type LinkContent = Omit<LinkRow, "hash" | "seal">;

/** The hash of a link that follows one with the hash `previous`. Can be computed without the key, from an export. */
export function hashOf(link: LinkContent, previous: Buffer): Buffer {
  const { org_id, seq, entry_id, kind, linked_at, digest } = link;
  const text = JSON.stringify([
    "vivarium audit link 1",
    org_id,
    seq,
    entry_id,
    kind,
    linked_at.toISOString(),
    digest.toString("hex"),
    previous.toString("hex"),
  ]);
  return createHash("sha256").update(text).digest();
}

export function newLink(auditKey: Buffer, content: LinkContent, previous: Buffer): LinkRow {
  const hash = hashOf(content, previous);
  return { ...content, hash, seal: sealOfLink(auditKey, hash) };
}

export function isLinkSealed(auditKey: Buffer, { hash, seal }: LinkRow): boolean {
  return isSame(seal, sealOfLink(auditKey, hash));
}

function sealOfLink(auditKey: Buffer, hash: Buffer): Buffer {
  return sealText(auditKey, `vivarium audit link 1 ${hash.toString("hex")}`);
}

type HeadContent = Omit<HeadRow, "seal">;

/** The head of a chain that has no link yet. */
export function firstHead(orgId: string, at: Date, unsealedUntil: number): HeadContent {
  const anchor = { anchor_seq: 0, anchor_hash: NO_HASH, anchor_at: at };
  return { org_id: orgId, seq: 0, hash: NO_HASH, at, ...anchor, unsealed_until: unsealedUntil };
}

export function sealedHead(auditKey: Buffer, content: HeadContent): HeadRow {
  return { ...content, seal: sealOfHead(auditKey, content) };
}

export function isHeadSealed(auditKey: Buffer, head: HeadRow): boolean {
  return isSame(head.seal, sealOfHead(auditKey, head));
}

function sealOfHead(auditKey: Buffer, head: HeadContent): Buffer {
  const text = JSON.stringify([
    "vivarium audit head 1",
    head.org_id,
    head.seq,
    head.hash.toString("hex"),
    head.at.toISOString(),
    head.anchor_seq,
    head.anchor_hash.toString("hex"),
    head.anchor_at.toISOString(),
    head.unsealed_until,
  ]);
  return sealText(auditKey, text);
}
