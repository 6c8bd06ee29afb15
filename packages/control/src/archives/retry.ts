/** Tries again to archive the state of a paused session, at once instead of within the hour. */
import type { Archive as ShownArchive } from "@vivarium/contract/api";
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { addArchive } from "../archive-records/add.ts";
import { isWarm, toArchive } from "../archive-records/shown.ts";
import { findArchiveOf } from "../archive-records/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { getSession } from "../sessions/get.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { ArchiveDeps } from "./deps.ts";
import { deleteOutgrown, lockSession, retry } from "./store.ts";

export async function retryArchive(
  deps: ArchiveDeps,
  scope: Scope,
  { id, by }: { id: string; by: Caller },
): Promise<ShownArchive> {
  const snapshotId = requirePaused(await getSession(deps.db, scope, id));
  if (!deps.hasArchives || !deps.keyring.current) throw noColdTier();
  const snapshot = await findOnNode(deps, snapshotId);
  const archive = await deps.db.transaction().execute(async (tx) => {
    await lockSession(tx, id);
    const session = await getSession(tx, scope, id);
    if (requirePaused(session) !== snapshotId) throw notHere();
    if (snapshot) await deleteOutgrown(tx, [snapshotId]);
    else if (await isWarm(tx, snapshotId)) throw isPacked();
    if ((await findArchiveOf(tx, snapshotId))?.state === "complete") throw isComplete();
    if (!snapshot) throw notHere();
    const added = await addArchive(deps, tx, { kind: "pause", session, snapshot });
    if (!added) throw noColdTier();
    await retry(tx, added.id);
    await appendEntry(deps, tx, { by, action: "session.archive_retry", target: id, sessionId: id });
    return (await findArchiveOf(tx, snapshotId)) ?? added;
  });
  await deps.jobs.add("archive_upload", archive.id);
  return toArchive(archive);
}

async function findOnNode({ nodes }: ArchiveDeps, snapshotId: string): Promise<SnapshotStatus | undefined> {
  const snapshots = await nodes.listSnapshots().catch((error: unknown) => {
    throw error instanceof NodeError ? apiErrorOfNode(error) : error;
  });
  return snapshots.find((one) => one.snapshot_id === snapshotId);
}

function requirePaused({ state, snapshot_id: id }: SessionRow): string {
  if (state === "paused" && id !== null) return id;
  throw new ApiError(
    "conflict",
    `only the saved state of a paused session can be archived, and this session is ${state}`,
  );
}

const isComplete = () => new ApiError("conflict", "the session's saved state is in the object store already");
const isPacked = () =>
  new ApiError(
    "conflict",
    "the session's saved state is packed in a directory of its host; resume the session, and its next pause is archived",
  );
const notHere = () =>
  new ApiError("conflict", "the session's saved state is not on its node any more, so it cannot be archived");
const noColdTier = () =>
  new ApiError("archive_unavailable", "this server keeps no saved states in an object store");
