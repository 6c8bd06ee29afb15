/** Removes what is older than the retention from the beginning of each chain, and moves the chain's anchor. */
import { LIMITS } from "@vivarium/contract/api";
import { type HeadRow, sealedHead } from "./chain.ts";
import {
  findHead,
  findLastOldLink,
  listHeads,
  lockChains,
  removeLinksUpTo,
  removeOldUnlinked,
  removeOldWithoutChain,
  saveHead,
} from "./chain-store.ts";
import type { ChainDeps } from "./extend-chain.ts";

const AT_ONCE = 2_000;
const SECONDS = LIMITS.auditRetentionMs / 1000;

export async function deleteOldEntries(deps: ChainDeps): Promise<void> {
  await removeOldWithoutChain(deps.db, SECONDS);
  for (const { org_id: orgId } of await listHeads(deps.db))
    for (let isMore = true; isMore; ) isMore = await shorten(deps, orgId);
}

/** Removes up to `AT_ONCE` links. Returns whether there may be more. */
async function shorten({ db, auditKey }: ChainDeps, orgId: string): Promise<boolean> {
  return await db.transaction().execute(async (tx) => {
    // If another process has the chains, the next hour does it.
    if (!(await lockChains(tx))) return false;
    const head = await findHead(tx, orgId);
    if (!head) return false;
    const last = await findLastOldLink(tx, orgId, {
      after: head.anchor_seq,
      seconds: SECONDS,
      limit: AT_ONCE,
    });
    if (!last) {
      await removeOldUnlinked(tx, head, SECONDS);
      return false;
    }
    await removeLinksUpTo(tx, orgId, last.seq);
    await saveHead(tx, sealedHead(auditKey, withAnchor(head, last)));
    return true;
  });
}

function withAnchor(head: HeadRow, last: { seq: number; hash: Buffer; linked_at: Date }): HeadRow {
  return { ...head, anchor_seq: last.seq, anchor_hash: last.hash, anchor_at: last.linked_at };
}
