/**
 * The whole log as lines of JSON: entries from before the chain, then each link with its entry, then the head. A reader can
 * compute every hash again without the service (docs/guide/audit.md). An export without its last line is cut off.
 */
import type { AuditExportLine } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { NO_HASH } from "./chain.ts";
import { findHead, findLink, type LinkWithEntry, listEntriesInOrder, listLinks } from "./chain-store.ts";
import { toEntry } from "./record.ts";

const AT_ONCE = 500;

/** `after`: the number of a link; only what follows it is exported, without entries from before the chain. */
export async function* exportLines(db: Database, orgId: string, after?: number): AsyncGenerator<string> {
  if (after === undefined) yield* beforeChain(db, orgId);
  const head = await findHead(db, orgId);
  const end = head?.seq ?? 0;
  let last = Math.max(after ?? 0, head?.anchor_seq ?? 0);
  let previous =
    last === head?.anchor_seq ? head.anchor_hash : ((await findLink(db, orgId, last))?.hash ?? NO_HASH);
  while (last < end) {
    const rows = await listLinks(db, orgId, { after: last, limit: AT_ONCE });
    // Links beyond the head belong to a later export.
    for (const row of rows.filter(({ link }) => link.seq <= end)) {
      yield toLine({ type: "link", ...linkOf(row, previous) });
      previous = row.link.hash;
    }
    last = rows.at(-1)?.link.seq ?? end;
  }
  const ending = head && { seq: head.seq, hash: head.hash.toString("hex"), at: head.at.toISOString() };
  yield toLine({ type: "head", head: ending ?? null });
}

async function* beforeChain(db: Database, orgId: string): AsyncGenerator<string> {
  let after = 0;
  for (let isMore = true; isMore; ) {
    const rows = await listEntriesInOrder(db, orgId, { after, limit: AT_ONCE });
    for (const row of rows)
      if (row.seal === null) yield toLine({ type: "before_chain", entry: toEntry(row) });
    after = rows.at(-1)?.seq ?? after;
    isMore = rows.length === AT_ONCE && rows.some(({ seal }) => seal === null);
  }
}

function linkOf({ link, entry }: LinkWithEntry, previous: Buffer) {
  return {
    link: {
      seq: link.seq,
      entry_id: link.entry_id,
      ...(entry && { entry_seq: entry.seq }),
      kind: link.kind,
      at: link.linked_at.toISOString(),
      digest: link.digest.toString("hex"),
      previous: previous.toString("hex"),
      hash: link.hash.toString("hex"),
    },
    entry: entry && toEntry(entry),
  };
}

function toLine(line: AuditExportLine): string {
  return `${JSON.stringify(line)}\n`;
}
