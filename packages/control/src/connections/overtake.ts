/** Makes the Connections of a session newer than those that its node has. */
import { listConnections } from "../connection-records/store.ts";
import type { PushDeps } from "./push.ts";
import { dataKeyOf } from "./rules.ts";
import { sealedAgain } from "./seal.ts";
import { raiseVersionAbove, saveGeneration } from "./store.ts";

/**
 * The node has a version that the row has not had: the database was restored from a backup. The node would ignore what control
 * sends, so that a Connection which is revoked now would be used on. Does nothing if the row has that version, because another
 * process made the change. Generations follow: they are
 * versions, so this one is above those that the gateway has.
 */
export async function overtake({ db, keyring }: PushDeps, sessionId: string, known: number): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const session = await raiseVersionAbove(tx, sessionId, known);
    if (!session) return;
    const key = await dataKeyOf({ keyring }, session);
    const generation = session.connections_version;
    for (const row of await listConnections(tx, [sessionId])) {
      const { sealed } = row;
      if (sealed === null) continue;
      const again = sealedAgain(key, session, { ...row, sealed }, generation);
      await saveGeneration(tx, row, { generation, sealed: again });
    }
  });
}
