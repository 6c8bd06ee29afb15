/** Pulls an image into a directory: its configuration, and its layers as files that are verified and durable. */
import { allOrNone } from "@vivarium/kit/all-or-none";
import { syncPath } from "@vivarium/kit/durable-file";
import { compressionOf, type LayerCompression } from "./documents.ts";
import { fetchBlob } from "./fetch-blob.ts";
import type { ImageConfig } from "./image-config.ts";
import { type Progress, ProgressCount } from "./progress.ts";
import { manifestName, parseReference, textOfReference } from "./reference.ts";
import { Registry, type RegistryOptions } from "./registry.ts";
import {
  LINUX_AMD64,
  type Platform,
  type ResolvedImage,
  resolveImage,
  type WantedImage,
} from "./resolve-image.ts";
import type { ImageSource } from "./source.ts";
import { withinTime } from "./within-time.ts";

export interface FetchInput {
  /** Exists, and is this pull's own. What a pull that failed leaves there, a later one continues. */
  directory: string;
  platform?: Platform;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
  /** Called once it is known which image the reference means, before any layer is fetched. The pull waits for it. */
  onResolved?: (image: Pick<PulledImage, "reference" | "manifestDigest">) => Promise<void>;
}

export interface PullInput extends RegistryOptions, FetchInput {
  reference: string;
}

export interface PulledLayer {
  digest: string;
  /** Digest of the unpacked layer, by the configuration. */
  diffId: string;
  compression: LayerCompression;
  size: number;
  path: string;
}

export interface PulledImage {
  /** The reference in full, with the digest to which it was resolved. */
  reference: string;
  manifestDigest: string;
  config: ImageConfig;
  /** The configuration as the registry has it. */
  configBytes: Buffer;
  /** Lowest first. A layer that appears twice has one file. */
  layers: PulledLayer[];
}

/** Rejects with RegistryError, with the reason of the signal, or with an error of the file system. */
export async function pullImage(input: PullInput): Promise<PulledImage> {
  const reference = parseReference(input.reference);
  const registry = new Registry(reference.registry, reference.repository, input);
  try {
    const wanted = { name: manifestName(reference), digest: reference.digest };
    const full = (digest: string) => textOfReference({ ...reference, digest });
    return await fetchImage(registry, { ...input, wanted, referenceOf: full });
  } finally {
    await registry.close();
  }
}

interface FetchedFrom extends FetchInput {
  wanted: WantedImage;
  /** The reference in full, of the digest of the index or manifest that was asked for, and of the platform's manifest. */
  referenceOf(digest: string, manifestDigest: string): string;
}

export async function fetchImage(source: ImageSource, input: FetchedFrom): Promise<PulledImage> {
  const { directory, platform = LINUX_AMD64, wanted } = input;
  const count = new ProgressCount(input.onProgress);
  return await withinTime(source.limits.totalMs, input.signal, async (signal) => {
    const image = await resolveImage(source, { wanted, platform }, signal);
    const { manifestDigest } = image;
    const names = { reference: input.referenceOf(image.digest, manifestDigest), manifestDigest };
    await input.onResolved?.(names);
    count.begin(image.manifest.layers);
    const paths = await fetchLayers(source, image, directory, count, signal);
    await syncPath(directory);
    count.finish();
    return {
      ...names,
      config: image.config,
      configBytes: image.configBytes,
      layers: layersOf(image, paths),
    };
  });
}

/** Paths by digest. The first failure ends the other transfers, and is the one that is reported. */
async function fetchLayers(
  registry: ImageSource,
  { manifest }: ResolvedImage,
  directory: string,
  count: ProgressCount,
  signal: AbortSignal,
): Promise<Map<string, string>> {
  const failure = new AbortController();
  const either = AbortSignal.any([signal, failure.signal]);
  const paths = new Map<string, string>();
  const queue = new Map(manifest.layers.map((layer) => [layer.digest, layer])).values();
  const work = async () => {
    for (const blob of queue) {
      const onBytes = (bytes: number) => count.set(blob.digest, bytes);
      paths.set(blob.digest, await fetchBlob(registry, { blob, directory, onBytes }, either));
      count.complete(blob.digest);
    }
  };
  const workers = Array.from({ length: registry.limits.concurrency }, () =>
    work().catch((error) => {
      failure.abort(error);
      throw failure.signal.reason;
    }),
  );
  await allOrNone(workers);
  return paths;
}

function layersOf({ manifest, config }: ResolvedImage, paths: Map<string, string>): PulledLayer[] {
  return manifest.layers.map((layer, index) => ({
    digest: layer.digest,
    diffId: config.diffIds[index] as string,
    compression: compressionOf(layer),
    size: layer.size,
    path: paths.get(layer.digest) as string,
  }));
}
