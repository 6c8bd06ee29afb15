/**
 * Removes what is older than the retention from the beginning of each chain, and moves the chain's anchor.
 *
 * Hazard: what is removed here leaves no finding. So who can write to the database would only have to make a link older, or
 * change the anchor, and the service removed the evidence itself.
 */
import { LIMITS } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { type HeadRow, hashOf, isHeadSealed, isLinkSealed, type LinkRow, sealedHead } from "./chain.ts";
import {
  findHead,
  findLastOldLink,
  findLink,
  listHeads,
  lockChains,
  removeLinksUpTo,
  removeOldUnlinked,
  removeOldWithoutChain,
  saveHead,
} from "./chain-store.ts";
import { isSame } from "./entry.ts";
import type { ChainDeps } from "./extend-chain.ts";

const AT_ONCE = 2_000;
const SECONDS = LIMITS.auditRetentionMs / 1000;

export async function deleteOldEntries(deps: ChainDeps): Promise<void> {
  await removeOldWithoutChain(deps.db, SECONDS);
  for (const { org_id: orgId } of await listHeads(deps.db))
    for (let isMore = true; isMore; ) isMore = await shorten(deps, orgId);
}

/** Removes up to `AT_ONCE` links. Returns whether there may be more. */
async function shorten({ db, auditKey, log }: ChainDeps, orgId: string): Promise<boolean> {
  return await db.transaction().execute(async (tx) => {
    // If another process has the chains, the next hour does it.
    if (!(await lockChains(tx))) return false;
    const head = await findHead(tx, orgId);
    if (!head) return false;
    const keep = (what: string) => {
      log.error({ org_id: orgId }, `the service did not write this ${what}: nothing is removed`);
      return false;
    };
    if (!isHeadSealed(auditKey, head)) return keep("head of the audit log");
    const last = await findLastOldLink(tx, orgId, {
      after: head.anchor_seq,
      seconds: SECONDS,
      limit: AT_ONCE,
    });
    if (!last) {
      await removeOldUnlinked(tx, head, SECONDS);
      return false;
    }
    if (!(await isGenuine(tx, auditKey, { head, link: last }))) return keep("link of the audit log");
    await removeLinksUpTo(tx, orgId, last.seq);
    await saveHead(tx, sealedHead(auditKey, withAnchor(head, last)));
    return true;
  });
}

/** Whether the link is as the service wrote it, its time included, which its hash covers. */
async function isGenuine(
  tx: Queries,
  auditKey: Buffer,
  { head, link }: { head: HeadRow; link: LinkRow },
): Promise<boolean> {
  const before = link.seq - 1;
  const previous =
    before === head.anchor_seq ? head.anchor_hash : (await findLink(tx, link.org_id, before))?.hash;
  if (previous === undefined || !isLinkSealed(auditKey, link)) return false;
  return isSame(link.hash, hashOf(link, previous));
}

function withAnchor(head: HeadRow, last: { seq: number; hash: Buffer; linked_at: Date }): HeadRow {
  return { ...head, anchor_seq: last.seq, anchor_hash: last.hash, anchor_at: last.linked_at };
}
