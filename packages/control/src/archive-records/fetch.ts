/** Fetches a saved state that its node does not have from its archive. */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { type PlaceDeps, placeOf } from "./place.ts";
import { type Archive, findArchive, findArchiveOf, saveIsCold } from "./store.ts";

interface FetchDeps extends PlaceDeps {
  nodes: NodeClient;
}

/**
 * Makes the call of a node, for which it needs the snapshot. If the node has lost it, or has it damaged, it is fetched, and the
 * call is made again.
 */
export async function withSnapshot<T>(
  deps: FetchDeps,
  snapshotId: string | undefined,
  signal: AbortSignal,
  call: () => Promise<T>,
): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (snapshotId === undefined || !isMissing(error)) throw error;
    if (!(await fetchSnapshot(deps, snapshotId, signal))) throw error;
    return await call();
  }
}

/** Whether the snapshot is in the object store, whole. */
export async function canFetch({ db }: Pick<FetchDeps, "db">, snapshotId: string): Promise<boolean> {
  return (await findArchiveOf(db, snapshotId))?.state === "complete";
}

/** False if there is no archive that is complete. Repeated after a death, the call continues with what the node has. */
async function fetchSnapshot(deps: FetchDeps, snapshotId: string, signal: AbortSignal): Promise<boolean> {
  const archive = await findArchiveOf(deps.db, snapshotId);
  if (archive?.state !== "complete") return false;
  await fetchArchive(deps, archive, signal);
  crashPoint("archive.fetched");
  await saveIsCold(deps.db, [snapshotId], false);
  return true;
}

async function fetchArchive(deps: FetchDeps, archive: Archive, signal: AbortSignal): Promise<void> {
  if (archive.state !== "complete")
    throw new NodeError("refused", `the archive ${archive.id}, which others need, was found damaged`, {
      code: "archive_unusable",
    });
  const base = archive.base_archive === null ? undefined : await findArchive(deps.db, archive.base_archive);
  try {
    await unpack(deps, archive, base, signal);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    if (error.code === "base_not_found" && base) await fetchArchive(deps, base, signal);
    else if (error.code === "snapshot_damaged") await deps.nodes.deleteSnapshot(archive.snapshot_id);
    else throw error;
    crashPoint("archive.base_fetched");
    await unpack(deps, archive, base, signal);
  }
}

async function unpack(
  deps: FetchDeps,
  archive: Archive,
  base: Archive | undefined,
  signal: AbortSignal,
): Promise<void> {
  await deps.nodes.unpackSnapshot(
    archive.snapshot_id,
    {
      ...(await placeOf(deps, archive)),
      base: base?.snapshot_id,
      contents: archive.contents?.toString("hex") ?? "",
      bytes: archive.differing_bytes ?? undefined,
    },
    signal,
  );
}

function isMissing(error: unknown): boolean {
  if (!(error instanceof NodeError)) return false;
  return error.code === "snapshot_not_found" || error.code === "snapshot_damaged";
}
