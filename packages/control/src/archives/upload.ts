/**
 * Lets the node pack a pending archive into the object store: the handler of a background job. It may die anywhere. The next
 * attempt finds the chunks that are there.
 */
import { LIMITS } from "@vivarium/contract/api";
import type { Packed } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { changeBase } from "../archive-records/add.ts";
import { hasContents, placeOf } from "../archive-records/place.ts";
import { type Archive, findArchive, findSpace } from "../archive-records/store.ts";
import { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";
import type { ArchiveDeps } from "./deps.ts";
import { hasLocalSpace, readLocalFree } from "./local-free.ts";
import { endUpload } from "./settle.ts";
import { beginAttempt, packAgain } from "./store.ts";

/** Codes after which a further attempt would have the same outcome. */
const FINAL: ReadonlySet<string> = new Set(["snapshot_not_found", "snapshot_damaged", "invalid"]);

export async function uploadArchive(deps: ArchiveDeps, id: string, stopping: AbortSignal): Promise<void> {
  const archive = await deps.db.transaction().execute((tx) => beginAttempt(tx, id));
  if (!archive) return;
  crashPoint("archive.attempt");
  try {
    const packed = await pack(deps, archive, stopping);
    if (packed === "another base") return;
    crashPoint("archive.packed");
    await endUpload(deps, archive, { packed });
    deps.meter.uploadEnded("complete");
  } catch (error) {
    // The next process continues.
    if (stopping.aborted) throw error;
    deps.meter.uploadEnded("failed");
    const isFinal = error instanceof NodeError && FINAL.has(error.code ?? "");
    if (!isFinal && archive.tries < LIMITS.archiveAttempts) throw error;
    await endUpload(deps, archive, { error: wordsOf(error) });
  }
}

async function pack(
  deps: ArchiveDeps,
  archive: Archive,
  signal: AbortSignal,
): Promise<Packed | "another base"> {
  const base = archive.base_archive === null ? undefined : await findArchive(deps.db, archive.base_archive);
  const isLocal = (await findSpace(deps.db, archive.space_id))?.is_local ?? false;
  if (isLocal) await requireLocal(deps, base);
  const access = { ...(await placeOf(deps, archive)), base: base?.snapshot_id };
  crashPoint("archive.begun");
  try {
    return await deps.nodes.packSnapshot(archive.snapshot_id, access, signal);
  } catch (error) {
    // With another base, or none, a state of the warm tier would take more than it frees.
    if (!(error instanceof NodeError) || error.code !== "base_not_found" || !base || isLocal) throw error;
    // The sweep adds a job for it.
    await deps.db.transaction().execute((tx) => changeBase(deps, tx, archive));
    return "another base";
  }
}

/** Throws unless there is space for the warm tier, and it still has the base: a backup may have been restored without it. */
async function requireLocal(deps: ArchiveDeps, base: Archive | undefined): Promise<void> {
  if (!hasLocalSpace(await readLocalFree(deps))) throw new Error("the disk of the warm tier is nearly full");
  if (base && !(await hasContents(deps, base))) {
    await packAgain(deps.db, base.id);
    throw new Error(`the warm tier has lost the archive ${base.id}, which is packed again first`);
  }
}

function wordsOf(error: unknown): string {
  if (!(error instanceof NodeError)) return "the state could not be stored";
  if (error.failure === "unreachable") return "the node does not answer";
  return oneLine(error.message, 300);
}
