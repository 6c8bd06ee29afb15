/**
 * Volumes and the sessions that have them. A session has its volume from its create until nothing of its machine is left on
 * the node, as the node itself says.
 */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Scope } from "../access/principal.ts";
import type { Database, Queries } from "../db/pool.ts";
import { appendEvent } from "../events/append.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { sessionIdOf } from "../sessions/state.ts";
import { getVolume, requireFree } from "./get.ts";
import { listHoldersWithoutUse, markSaved, setHolder, takeBack, type VolumeRow } from "./store.ts";

/** The columns of a new session with its volume, whose row is locked. It must be free. */
export async function lockVolume(tx: Queries, scope: Scope, volumeId: string | null | undefined) {
  if (volumeId == null) return {};
  const volume = await getVolume(tx, scope, volumeId, { field: "volume_id", lock: true });
  requireFree(volume, "volume_id: ");
  return { volume_id: volume.id, volume_gb: volume.size_gb };
}

/** Gives a new session the volume that `lockVolume` locked in this transaction. */
export async function attachVolume(
  tx: Queries,
  { id, volume_id: volumeId }: { id: string; volume_id: string | null },
): Promise<void> {
  if (volumeId !== null) await setHolder(tx, volumeId, id);
}

interface HeldBy {
  id: string;
  volume_id: string | null;
}

/** Takes the volume back from a session that has ended. The node has nothing of its machines any more. */
export async function giveBackVolume(db: Database, session: HeldBy): Promise<void> {
  if (session.volume_id === null) return;
  await saved(db, session.id, takeBack);
}

/** Notes that what a paused session has written is on disk: its machine is gone. */
export async function noteVolumeSaved(db: Database, session: HeldBy): Promise<void> {
  if (session.volume_id === null) return;
  await saved(db, session.id, markSaved);
}

async function saved(
  db: Database,
  sessionId: string,
  write: (tx: Queries, sessionId: string) => Promise<VolumeRow | undefined>,
): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const row = await write(tx, sessionId);
    if (!row) return;
    const { org_id: orgId, project_id: projectId, id } = row;
    await appendEvent(tx, { type: "volume.saved", orgId, projectId, sessionId, data: { volume_id: id } });
  });
  crashPoint("volume.given_back");
}

/** A part of the sweep: takes volumes back from sessions that never run again, once no machine of theirs is left. */
export async function giveBackUnused({ db, nodes }: { db: Database; nodes: NodeClient }): Promise<void> {
  const holders = await listHoldersWithoutUse(db);
  if (holders.length === 0) return;
  const machines = await nodes.listMachines();
  const running = new Set(machines.map(({ machine_id: id }) => sessionIdOf(id)));
  for (const id of holders) if (!running.has(id)) await saved(db, id, takeBack);
}
