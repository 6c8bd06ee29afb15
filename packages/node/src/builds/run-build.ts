/**
 * Makes a template of an image: pulls it, or reads it out of a machine, has a builder unpack it, digests the disk and bakes a baseline in each size. An
 * attempt that ends anywhere leaves what was pulled, with which the next one continues; everything else begins anew.
 */
import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { SIZES, type Size } from "@vivarium/contract/api/limits";
import type { GIVEN } from "@vivarium/contract/guest";
import type { BuildStage, BuildStatus } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { writeDurably } from "@vivarium/kit/durable-file";
import { MIB } from "@vivarium/kit/sizes";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { pullLayout } from "@vivarium/oci/image-layout";
import { type PulledImage, type PullInput, pullImage } from "@vivarium/oci/pull-image";
import { normalRegistry, parseReference } from "@vivarium/oci/reference";
import { bakeBaseline } from "../snapshots/bake.ts";
import { type Build, become } from "./build.ts";
import { BUILDER_MB } from "./builder.ts";
import type { BuildDeps } from "./deps.ts";
import { environmentOf, notesOn } from "./image-settings.ts";
import { openerOf } from "./layout-files.ts";
import { TARGET_BYTES } from "./target-disk.ts";
import { type UnpackedImage, unpackImage } from "./unpack-image.ts";
import { waitForMemory } from "./wait-for-memory.ts";

/** A machine that boots and runs a few programs takes less of its memory than this. */
const BAKE_MB = 1024;
/** Lines of the log about the parts that the builder gave an image. */
const GIFTS: Record<(typeof GIVEN)[number], string> = {
  shell: "the image has no shell; it got one, /.vivarium/sh",
  certificates: "the image has no certificates to trust; it got those of the base template",
};
/** The disk of a build's folder is hashed with this word in front. */
const HASH_PREFIX = "sha256:";

export async function runBuild(deps: BuildDeps, build: Build): Promise<void> {
  const undo = new UndoStack();
  try {
    await removeRest(build.dir);
    undo.push("reserved disk", await deps.gate.reserve(bytesOf(build)));
    const image = await pull(deps, build, undo);
    const unpacked = await unpack(deps, build, image);
    await bake(deps, build, { image, unpacked });
    const { progress: _, ...status } = build.status;
    const disk_sha256 = unpacked.hash.slice(HASH_PREFIX.length);
    await become(build, { ...status, state: "ready", disk_sha256, sizes: [...build.spec.sizes] });
    build.log.add("ready");
    await rm(layersDir(build.dir), { recursive: true, force: true });
  } finally {
    await undo.unwind();
  }
}

/** Folder of the layers that were pulled, until the build is ready. */
export const layersDir = (dir: string) => path.join(dir, "layers");

/** Removes what an earlier attempt has made of the image. */
export async function removeRest(dir: string): Promise<void> {
  const made = [
    "unpack",
    "root.ext4",
    "template.json",
    ...Object.keys(SIZES).flatMap((s) => [s, `.${s}.tmp`]),
  ];
  for (const name of made) await rm(path.join(dir, name), { recursive: true, force: true });
}

/** The disk as declared, and one memory of each size. */
function bytesOf({ spec }: Build): number {
  const memory = spec.sizes.reduce((sum, size) => sum + SIZES[size as Size].mem_mb * MIB, 0);
  return TARGET_BYTES + memory;
}

async function enter(build: Build, stage: BuildStage, text: string): Promise<void> {
  build.over.signal.throwIfAborted();
  const { progress: _, ...status } = build.status;
  await become(build, { ...status, stage });
  build.log.add(`${stage}: ${text}`);
}

function report(build: Build, progress: NonNullable<BuildStatus["progress"]>): void {
  build.status = { ...build.status, progress };
}

async function pull(deps: BuildDeps, build: Build, undo: UndoStack): Promise<PulledImage> {
  const { spec, over, log } = build;
  const reference = build.image ?? spec.reference;
  await enter(build, "pull", `${spec.layout === undefined ? "fetching" : "reading"} ${reference}`);
  const directory = layersDir(build.dir);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const space = reserveLayers(deps, build, undo);
  let done = 0;
  const image = await obtain(deps, build, {
    directory,
    signal: space.signal,
    // An attempt after this one pulls the same image.
    onResolved: async ({ reference, manifestDigest: manifest_digest }) => {
      await become(build, { ...build.status, image: { reference, manifest_digest } });
      crashPoint("build.resolved");
      log.add(`pull: the image is ${reference}`);
    },
    onProgress: ({ stage, layers, bytes }) => {
      if (stage === "resolving") return;
      space.need(bytes.total);
      report(build, { layers, bytes });
      if (layers.done > done) log.add(`pull: layer ${layers.done} of ${layers.total} is here`);
      done = layers.done;
      if (done > 0) crashPoint("build.layer");
    },
  });
  await space.settled();
  crashPoint("build.pulled");
  over.signal.throwIfAborted();
  for (const note of notesOn(image.config)) log.add(`pull: ${note}`);
  return image;
}

/** From its registry, or from the layout in a machine. */
async function obtain(
  deps: BuildDeps,
  build: Build,
  input: Omit<PullInput, "reference" | "dial">,
): Promise<PulledImage> {
  const { reference, layout } = build.spec;
  if (layout !== undefined)
    return await pullLayout({ ...input, reference, open: openerOf(deps, build, layout) });
  return await pullImage({
    ...input,
    reference: build.image ?? reference,
    dial: deps.dial,
    ...credentialOf(build),
  });
}

/** The credential is for its registry alone: without one of this registry the image is asked for without any. */
function credentialOf({ spec, credential }: Build) {
  const { registry } = parseReference(spec.reference);
  return credential && normalRegistry(credential.registry) === registry ? { credential } : {};
}

/** Reserves the space of the layers once the manifest says it. Without that space the pull ends. */
function reserveLayers({ gate }: BuildDeps, { over }: Build, undo: UndoStack) {
  const full = new AbortController();
  let asked: Promise<void> | undefined;
  return {
    signal: AbortSignal.any([over.signal, full.signal]),
    need(bytes: number): void {
      asked ??= gate.reserve(bytes).then(
        (release) => undo.push("disk of the layers", release),
        (error) => full.abort(error),
      );
    },
    async settled(): Promise<void> {
      await asked;
      full.signal.throwIfAborted();
    },
  };
}

async function unpack(deps: BuildDeps, build: Build, image: PulledImage): Promise<UnpackedImage> {
  const { config, qemu, cgroups, accelerators } = deps;
  const { length: total } = image.layers;
  await enter(build, "unpack", `${total} layers in a machine without a network`);
  await waitForMemory(BUILDER_MB, deps.giveUpOne, build.over.signal);
  let hashing: Promise<void> | undefined;
  const unpacked = await unpackImage(
    {
      ...{ qemu, cgroups, accelerators },
      ...{ imagesDir: config.imagesDir, cpuModel: config.cpuModel },
      ...{ owner: config.dataDir, slots: config.maxMachines * 8 },
    },
    {
      layers: image.layers.map(({ size, ...layer }) => ({ ...layer, sizeBytes: size })),
      environment: environmentOf(image.config.env),
      folder: build.dir,
      signal: build.over.signal,
      onProgress: ({ layer, bytes, totalBytes }) => {
        const isOver = bytes === totalBytes;
        const layers = { done: isOver ? total : layer, total };
        report(build, { layers, bytes: { done: bytes, total: totalBytes } });
      },
      onUnpacked: ({ entries, bytes, skipped, given }) => {
        build.log.add(`unpack: ${entries} entries, ${bytes} bytes; ${skipped} devices and FIFOs left out`);
        for (const one of new Set(given)) build.log.add(`unpack: ${GIFTS[one]}`);
        hashing = enter(build, "hash", "digesting the disk");
        hashing.catch(() => {});
      },
    },
    // One change of the record at a time.
  ).finally(() => hashing?.catch(() => {}));
  await hashing;
  build.log.add(`hash: the disk is ${unpacked.hash}`);
  return unpacked;
}

interface Made {
  image: PulledImage;
  unpacked: UnpackedImage;
}

async function bake(deps: BuildDeps, build: Build, { image, unpacked }: Made): Promise<void> {
  const { config, qemu, cgroups, accelerators, log } = deps;
  await enter(build, "bake", `booting it in size ${build.spec.sizes.join(", ")}`);
  const origin = { ...build.status.image, content_hash: unpacked.hash, config: image.config };
  await writeDurably(path.join(build.dir, "template.json"), JSON.stringify(origin), 0o600);
  for (const size of build.spec.sizes) {
    await waitForMemory(BAKE_MB, deps.giveUpOne, build.over.signal);
    await bakeBaseline({
      ...{ qemu, cgroups, accelerators, owner: config.dataDir },
      ...{ imagesDir: config.imagesDir, cpuModel: config.cpuModel },
      progress: (line) => log.debug({ build: build.status.build_id }, line),
      template: build.status.build_id,
      folder: build.dir,
      size: size as Size,
      signal: build.over.signal,
    });
    build.log.add(`bake: size ${size} is ready`);
  }
}
