/**
 * Lets the node pack a pending archive into the object store: the handler of a background job. It may die anywhere. The next
 * attempt finds the chunks that are there.
 */
import { LIMITS } from "@vivarium/contract/api";
import type { Packed } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { changeBase } from "../archive-records/add.ts";
import { placeOf } from "../archive-records/place.ts";
import { type Archive, findArchive } from "../archive-records/store.ts";
import { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";
import type { ArchiveDeps } from "./deps.ts";
import { endUpload } from "./settle.ts";
import { beginAttempt } from "./store.ts";

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
  const access = { ...(await placeOf(deps, archive)), base: base?.snapshot_id };
  crashPoint("archive.begun");
  try {
    return await deps.nodes.packSnapshot(archive.snapshot_id, access, signal);
  } catch (error) {
    if (!(error instanceof NodeError) || error.code !== "base_not_found" || !base) throw error;
    // The sweep adds a job for it.
    await deps.db.transaction().execute((tx) => changeBase(deps, tx, archive));
    return "another base";
  }
}

function wordsOf(error: unknown): string {
  if (!(error instanceof NodeError)) return "the state could not be stored";
  if (error.failure === "unreachable") return "the node does not answer";
  return oneLine(error.message, 300);
}
