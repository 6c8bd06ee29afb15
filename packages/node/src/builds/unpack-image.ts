/**
 * Unpacks a container image into a disk: makes target and layer disk, has a builder do the work, and takes the target from
 * it. Everything until then is in one folder, which the next attempt throws away, so that a death at any moment costs the
 * attempt alone. The slot of a builder that outlives the daemon is emptied at its next start.
 */
import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import type { UnpackProgress, UnpackTotals } from "@vivarium/contract/guest";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { UnpackError, unpackInGuest } from "../guest/unpack.ts";
import { BuildError } from "./build-error.ts";
import { type BuilderDeps, startBuilder } from "./builder.ts";
import { type LayerFile, makeLayerDisk } from "./layer-disk.ts";
import { type FinishedDisk, finishTarget, makeTarget } from "./target-disk.ts";

/** Time limit of everything up to the builder's end. */
const UNPACK_LIMIT_MS = 20 * 60_000;

export interface UnpackInput {
  /** Lowest first. */
  layers: readonly LayerFile[];
  /** The build's folder, on the pool, which gets `root.ext4`. Its folder `unpack` is this use case's own. */
  folder: string;
  /** The image's variables, as lines of /etc/environment. */
  environment?: string | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: UnpackingProgress) => void) | undefined;
  /** Called when the builder has ended, before the disk is hashed. */
  onUnpacked?: ((totals: UnpackTotals) => void) | undefined;
  limitMs?: number | undefined;
}

export interface UnpackingProgress {
  /** Number of the layer at work, from 0. */
  layer: number;
  /** Bytes of all layers that are read, as they are stored. */
  bytes: number;
  totalBytes: number;
}

export interface UnpackedImage extends FinishedDisk {
  /** As the builder counted. */
  totals: UnpackTotals;
}

/** Rejects with BuildError, or with the reason of the signal. */
export async function unpackImage(deps: BuilderDeps, input: UnpackInput): Promise<UnpackedImage> {
  const { layers, folder, signal, limitMs = UNPACK_LIMIT_MS } = input;
  // Before any disk or QEMU: a machine without a second disk must not look for layers elsewhere.
  if (layers.length === 0) throw new BuildError("image_invalid", "the image has no layers");
  const work = path.join(folder, "unpack");
  const late = AbortSignal.timeout(limitMs);
  try {
    await rm(work, { recursive: true, force: true });
    await rm(diskOf(folder), { force: true });
    await mkdir(work, { mode: 0o711 });
    const either = signal ? AbortSignal.any([signal, late]) : late;
    const totals = await unpackInto(deps, { ...input, work }, either);
    input.onUnpacked?.(totals);
    return { ...(await finishTarget(targetIn(work), diskOf(folder), either)), totals };
  } catch (error) {
    signal?.throwIfAborted();
    if (late.aborted)
      throw new BuildError("build_timeout", `the image was not unpacked within ${limitMs / 1000} s`);
    throw asBuildError(error);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

const diskOf = (folder: string) => path.join(folder, "root.ext4");
const targetIn = (work: string) => path.join(work, "target.raw");

/** Leaves nothing of the builder but the target. */
async function unpackInto(
  deps: BuilderDeps,
  { work, layers, environment = "", onProgress = () => {} }: UnpackInput & { work: string },
  signal: AbortSignal,
): Promise<UnpackTotals> {
  const files = { dir: work, target: targetIn(work), layers: path.join(work, "layers.raw") };
  await makeTarget(files.target);
  await makeLayerDisk(files.layers, layers, environment);
  const undo = new UndoStack();
  try {
    const builder = await startBuilder(deps, files, undo, signal);
    const totals = await unpackInGuest(builder.agent, {
      signal,
      onProgress: (progress) => onProgress(progressOf(layers, progress)),
    });
    await builder.end();
    return totals;
  } finally {
    await undo.unwind();
  }
}

/** Never past the end, whatever the builder says. */
function progressOf(layers: readonly LayerFile[], progress: UnpackProgress): UnpackingProgress {
  const layer = Math.min(progress.layer, layers.length - 1);
  const bytesOf = (some: readonly LayerFile[]) => some.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const before = bytesOf(layers.slice(0, layer));
  const now = Math.min(progress.bytes, layers[layer]?.sizeBytes ?? 0);
  return { layer, bytes: before + now, totalBytes: bytesOf(layers) };
}

function asBuildError(error: unknown): BuildError {
  if (error instanceof BuildError) return error;
  const { message } = error as Error;
  return new BuildError(error instanceof UnpackError ? error.code : "internal", message, { cause: error });
}
