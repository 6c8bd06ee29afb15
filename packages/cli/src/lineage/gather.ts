import { LIMITS } from "@vivarium/contract/api/limits";
import type { Checkpoint, Client, SessionRecord } from "@vivarium/sdk";
import { missingParents } from "./forest.ts";

/** Number of ended sessions that are searched for parents; a parent beyond them is shown as gone. */
const HISTORY_DEPTH = 1000;

/** Reads all present sessions, all checkpoints, and the ended sessions that these descend from. */
export async function gatherLineage(
  client: Client,
): Promise<{ sessions: SessionRecord[]; checkpoints: Checkpoint[]; isCut: boolean }> {
  const [{ sessions }, checkpoints] = await Promise.all([
    client.sessions.list({ limit: LIMITS.listMax }),
    Array.fromAsync(client.checkpoints.all({ pageSize: 200 })),
  ]);
  const ended = await findEnded(client, missingParents(sessions, checkpoints));
  return { sessions: [...sessions, ...ended], checkpoints, isCut: sessions.length === LIMITS.listMax };
}

async function findEnded(client: Client, ids: string[]): Promise<SessionRecord[]> {
  const wanted = new Set(ids.filter((id) => !id.startsWith("chk_")));
  const found: SessionRecord[] = [];
  let looked = 0;
  if (wanted.size === 0) return found;
  for await (const record of client.sessions.history({ pageSize: LIMITS.listMax })) {
    if (wanted.delete(record.session_id)) found.push(record);
    if (wanted.size === 0 || ++looked === HISTORY_DEPTH) break;
  }
  return found;
}
