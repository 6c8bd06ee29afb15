/**
 * Copies the files of a pending artifact into the object store: the handler of a background job. It may die anywhere. The
 * next attempt keeps the files that are whole, and pieces that are stored already.
 */
import { LIMITS } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";
import { releaseSession } from "../moves/release-session.ts";
import { findSessionById } from "../sessions/store.ts";
import type { ArtifactDeps } from "./deps.ts";
import { cutIntoPieces, type Place, storePiece } from "./pieces.ts";
import { placeOf, placeOfNew } from "./place.ts";
import { endCapture } from "./settle.ts";
import { CaptureRefused, type Found, type Source, sourceOf } from "./source.ts";
import { type ArtifactRow, beginAttempt, findArtifactById, insertFile, listFiles } from "./store.ts";

/** Attempts after which a capture has failed for good. */
const ATTEMPTS = 6;
/** How often a file that changes while it is read is read again within one attempt. */
const READS = 3;
/** Codes after which a further attempt would have the same outcome. */
const FINAL: ReadonlySet<string> = new Set([
  "not_found",
  "conflict",
  "validation",
  "session_ended",
  "session_node_lost",
]);

export async function captureArtifact(deps: ArtifactDeps, id: string, stopping: AbortSignal): Promise<void> {
  const artifact = await beginAttempt(deps.db, id);
  crashPoint("artifact.begun");
  if (artifact) await attempt(deps, artifact, stopping);
  await releaseAfterwards(deps, artifact ?? (await findArtifactById(deps.db, id)));
}

async function attempt(deps: ArtifactDeps, artifact: ArtifactRow, stopping: AbortSignal): Promise<void> {
  try {
    await copyAll(deps, artifact, AbortSignal.any([stopping, AbortSignal.timeout(timeLeftOf(artifact))]));
  } catch (error) {
    // The next process continues.
    if (stopping.aborted) throw error;
    if (!isFinal(error) && artifact.attempts < ATTEMPTS) throw error;
    await endCapture(deps, artifact, { outcome: "failed", error: wordsOf(error) });
  }
}

function timeLeftOf({ cause, captured_at: from }: ArtifactRow): number {
  const mostMs = cause === "teardown" ? LIMITS.artifactTeardownMs : LIMITS.artifactCaptureMs;
  return Math.min(mostMs, Math.max(1, from.getTime() + mostMs - Date.now()));
}

async function copyAll(deps: ArtifactDeps, artifact: ArtifactRow, signal: AbortSignal): Promise<void> {
  const source = await sourceOf(deps, artifact);
  const found = await source.match(artifact.paths, signal);
  checkCaps(found);
  crashPoint("artifact.matched");
  const done = new Map((await listFiles(deps.db, [artifact.id])).map((file) => [file.path, file]));
  const place = await (done.size === 0 ? placeOfNew : placeOf)(deps, artifact);
  crashPoint("artifact.keyed");
  let position = done.size === 0 ? 0 : Math.max(...[...done.values()].map((file) => file.position)) + 1;
  let bytes = [...done.values()].reduce((sum, file) => sum + file.size_bytes, 0);
  for (const { path } of found.filter((file) => !done.has(file.path))) {
    const copied = await copyFile(source, place, path, LIMITS.artifactBytes - bytes, signal);
    if (!copied) continue;
    bytes += copied.size_bytes;
    await insertFile(deps.db, { artifact_id: artifact.id, position: position++, path, ...copied });
    crashPoint("artifact.file");
  }
  if (position === 0) throw new CaptureRefused("no file matches the paths");
  await endCapture(deps, artifact, { outcome: "ready" });
}

function checkCaps(found: readonly Found[]): void {
  if (found.length === 0) throw new CaptureRefused("no file matches the paths");
  if (found.length > LIMITS.artifactFiles)
    throw new CaptureRefused(`more than ${LIMITS.artifactFiles} files match the paths`);
  if (found.reduce((sum, { bytes }) => sum + bytes, 0) > LIMITS.artifactBytes) throw tooLarge();
}

/** Undefined for a file that is gone by now, or that is not one any more. */
async function copyFile(
  source: Source,
  place: Place,
  path: string,
  mostBytes: number,
  signal: AbortSignal,
): Promise<{ size_bytes: number; pieces: Buffer } | undefined> {
  for (let read = 1; ; read++) {
    const opened = await source.open(path, signal);
    if (!opened) return undefined;
    try {
      if (opened.sizeBytes > mostBytes) throw tooLarge();
      const names: Buffer[] = [];
      for await (const piece of cutIntoPieces(opened.content)) {
        names.push(await storePiece(place, piece, signal));
        crashPoint("artifact.piece");
      }
      return { size_bytes: opened.sizeBytes, pieces: Buffer.concat(names) };
    } catch (error) {
      // The guest broke off: the file has become shorter, or the session was paused.
      if (signal.aborted || !opened.hasBroken() || read === READS) throw error;
    } finally {
      opened.release();
    }
  }
}

const tooLarge = () =>
  new CaptureRefused(`the files have more than ${LIMITS.artifactBytes / 1024 ** 3} GiB together`);

function isFinal(error: unknown): boolean {
  if (error instanceof CaptureRefused) return true;
  return error instanceof ApiError && FINAL.has(error.code);
}

function wordsOf(error: unknown): string {
  if (error instanceof CaptureRefused || error instanceof ApiError || error instanceof NodeError)
    return oneLine(error.message, 500);
  return "the files could not be copied";
}

/** The machine of an ended session has waited for this. A failure is left to the sweep. */
async function releaseAfterwards(deps: ArtifactDeps, artifact: ArtifactRow | undefined): Promise<void> {
  if (artifact?.cause !== "teardown") return;
  const session = await findSessionById(deps.db, artifact.session_id);
  if (session && session.machine_released_at === null) await releaseSession(deps, session);
}
