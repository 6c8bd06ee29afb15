/** Ends the open requests of keys and tokens that were revoked through another process, or have expired by the database's clock. */
import { listValidKeys, listValidTokens } from "../access/store.ts";
import type { Database } from "../db/pool.ts";
import type { OpenRequests } from "../http/open-requests.ts";

const IS_KEY = /^key_/;

export async function endRequestsOfEnded({
  db,
  openRequests,
}: {
  db: Database;
  openRequests: OpenRequests;
}): Promise<void> {
  const open = openRequests.credentialIds();
  const keys = open.filter((id) => IS_KEY.test(id));
  const tokens = open.filter((id) => !IS_KEY.test(id));
  const valid = new Set([
    ...(keys.length > 0 ? await listValidKeys(db, keys) : []),
    ...(tokens.length > 0 ? await listValidTokens(db, tokens) : []),
  ]);
  for (const id of open) if (!valid.has(id)) openRequests.endOf(id);
}
