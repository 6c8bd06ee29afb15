/**
 * Writes the uses of Connections to the audit log: an entry for each Connection and minute, and a further one for what is
 * reported after it. Each use is in one entry. The egress log has every request by itself, for some days.
 */
import { USE_OF_CONNECTION } from "@vivarium/contract/api";
import { theSystem } from "../access/caller.ts";
import { type AuditDeps, appendEntries } from "../audit/append.ts";
import { originOf } from "../connection-records/status.ts";
import type { Database } from "../db/pool.ts";
import { type CountedUses, takeCounts } from "./uses-store.ts";

const AT_ONCE = 500;

export async function auditUses(deps: AuditDeps & { db: Database }): Promise<void> {
  let taken: number;
  do {
    taken = await deps.db.transaction().execute(async (tx) => {
      const counts = await takeCounts(tx, AT_ONCE);
      await appendEntries(deps, tx, counts.map(entryOf));
      return counts.length;
    });
  } while (taken === AT_ONCE);
}

function entryOf({ session_id, name, org_id, host, minute, sent, reflected, refused }: CountedUses) {
  return {
    by: theSystem(org_id),
    action: USE_OF_CONNECTION,
    target: name,
    sessionId: session_id,
    meta: {
      origin: originOf({ host }),
      minute: minute.toISOString(),
      sent,
      ...(reflected > 0 && { reflected }),
      ...(refused > 0 && { refused }),
    },
  } as const;
}
