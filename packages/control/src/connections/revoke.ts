/** Revokes a Connection: its credential is deleted, and its origin refuses requests for the rest of the session's life. */
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { originOf } from "../connection-records/status.ts";
import { listConnections } from "../connection-records/store.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { getReadable } from "../sessions/get.ts";
import { confirmed } from "./confirm.ts";
import type { ConnectionDeps } from "./deps.ts";
import { connectionNotFound, metaOf } from "./rules.ts";
import { raiseVersion, revokeConnectionRow } from "./store.ts";

/** Resolves once its sockets are closed. A repeated call for a Connection that was revoked confirms that again. */
export async function revokeConnection(
  deps: ConnectionDeps,
  scope: Scope,
  { id, name, by }: { id: string; name: string; by: Caller },
): Promise<void> {
  const session = await getReadable(deps.db, scope, id);
  if (!(await listConnections(deps.db, [id])).some((one) => one.name === name))
    throw connectionNotFound(name);
  await deps.db.transaction().execute(async (tx) => {
    // Locks the session's row before the Connection's, in the order of all changes.
    await raiseVersion(tx, id);
    const row = await revokeConnectionRow(tx, id, name);
    if (!row) return;
    await appendEvent(tx, eventOf(session, "connection.revoked", { name, origin: originOf(row) }));
    const entry = { by, target: name, sessionId: id, meta: metaOf(row) };
    await appendEntry(deps, tx, { action: "connection.revoke", ...entry });
  });
  await confirmed(deps, id);
}
