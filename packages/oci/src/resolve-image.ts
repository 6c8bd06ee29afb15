/** Follows a reference to the manifest of one platform, by way of any index, and reads its configuration. */

import { createHash } from "node:crypto";
import { verifyBytes } from "./digest.ts";
import {
  ACCEPTED,
  checkConfigType,
  compressionOf,
  type Descriptor,
  type Index,
  isImageOrIndex,
  isIndex,
  type Manifest,
  readManifestOrIndex,
} from "./documents.ts";
import { type ImageConfig, readImageConfig } from "./image-config.ts";
import { readDocument } from "./registry.ts";
import { RegistryError } from "./registry-error.ts";
import type { ImageSource } from "./source.ts";
import { withRetries } from "./with-retries.ts";

export interface Platform {
  os: string;
  architecture: string;
}

export const LINUX_AMD64: Platform = { os: "linux", architecture: "amd64" };

export interface ResolvedImage {
  /** Digest of the index or manifest to which the reference points: it names the same image for ever. */
  digest: string;
  manifestDigest: string;
  manifest: Manifest;
  config: ImageConfig;
  configBytes: Buffer;
}

/** An image within its source: a tag or digest, and the digest that its document must have, if it is known. */
export interface WantedImage {
  name: string;
  digest?: string | undefined;
}

export async function resolveImage(
  registry: ImageSource,
  { wanted, platform }: { wanted: WantedImage; platform: Platform },
  signal: AbortSignal,
): Promise<ResolvedImage> {
  const top = await fetchDocument(registry, wanted.name, wanted.digest, signal);
  let found = top;
  for (let depth = 0; isIndex(found.document); depth++) {
    if (depth >= registry.limits.indexDepth)
      throw new RegistryError(
        "invalid_image",
        `the image has more than ${registry.limits.indexDepth} indexes inside of each other`,
      );
    const entry = pickEntry(found.document, platform);
    found = await fetchDocument(registry, entry.digest, entry.digest, signal, entry);
  }
  const manifest = found.document as Manifest;
  checkManifest(manifest, registry.limits);
  const configBytes = await fetchConfig(registry, manifest.config, signal);
  const config = readImageConfig(configBytes);
  checkConfig(config, manifest, platform);
  return { digest: top.digest, manifestDigest: found.digest, manifest, config, configBytes };
}

interface Found {
  digest: string;
  document: Manifest | Index;
}

/** `digest` is what the bytes must have; a tag may have any. */
async function fetchDocument(
  registry: ImageSource,
  name: string,
  digest: string | undefined,
  signal: AbortSignal,
  entry?: Descriptor,
): Promise<Found> {
  const what = `the manifest ${name}`;
  return await withRetries(registry.limits, signal, async () => {
    const answer = await registry.manifest(name, ACCEPTED, signal);
    const bytes = await readDocument(answer, what, registry.limits.manifestBytes);
    if (digest !== undefined) verifyBytes(what, bytes, digest);
    if (entry && bytes.length !== entry.size)
      throw new RegistryError(
        "bad_digest",
        `${what} has ${bytes.length} bytes, and ${entry.size} by its index`,
      );
    // Files have no type of their own: that of an entry is what its index says.
    const [type = entry?.mediaType] = answer.valuesOf("content-type");
    const document = readManifestOrIndex(type, bytes);
    return { digest: digest ?? `sha256:${createHash("sha256").update(bytes).digest("hex")}`, document };
  });
}

/** Prefers the first entry for the platform without a variant: a variant needs more than every such processor has. */
function pickEntry({ manifests }: Index, { os, architecture }: Platform): Descriptor {
  const images = manifests.filter(isImageOrIndex);
  const suitable = images.filter(
    ({ platform }) => platform?.os === os && platform.architecture === architecture,
  );
  const picked =
    suitable.find(({ platform }) => !platform?.variant || platform.variant === "v1") ?? suitable[0];
  if (picked) return picked;
  // An index without platforms leads to its only entry, whose configuration says for which it is.
  const [only, ...more] = images;
  if (only && more.length === 0 && !only.platform) return only;
  throw new RegistryError("no_platform", `the image is not for ${os}/${architecture}`);
}

function checkManifest({ config, layers }: Manifest, limits: ImageSource["limits"]): void {
  checkConfigType(config);
  if (layers.length === 0) throw new RegistryError("invalid_image", "the image has no layers");
  if (layers.length > limits.layers)
    throw new RegistryError("too_large", `the image has ${layers.length} layers, more than ${limits.layers}`);
  for (const layer of layers) compressionOf(layer);
  const bytes = layers.reduce((sum, { size }) => sum + size, 0);
  if (bytes > limits.layerBytes)
    throw new RegistryError(
      "too_large",
      `the image's layers have ${bytes} bytes, more than ${limits.layerBytes}`,
    );
  const sizes = new Map<string, number>();
  for (const { digest, size } of layers) {
    if ((sizes.get(digest) ?? size) !== size)
      throw new RegistryError("invalid_image", `the image gives two sizes for the layer ${digest}`);
    sizes.set(digest, size);
  }
}

async function fetchConfig(
  registry: ImageSource,
  { digest, size }: Descriptor,
  signal: AbortSignal,
): Promise<Buffer> {
  const what = "the configuration";
  const { configBytes } = registry.limits;
  if (size > configBytes) throw new RegistryError("too_large", `${what} is larger than ${configBytes} bytes`);
  return await withRetries(registry.limits, signal, async () => {
    const bytes = await readDocument(await registry.blob(digest, 0, signal), what, configBytes);
    verifyBytes(what, bytes, digest);
    if (bytes.length !== size)
      throw new RegistryError("bad_digest", `${what} has ${bytes.length} bytes, and ${size} by the manifest`);
    return bytes;
  });
}

function checkConfig(config: ImageConfig, { layers }: Manifest, { os, architecture }: Platform): void {
  if (config.os !== os || config.architecture !== architecture)
    throw new RegistryError("no_platform", `the image is not for ${os}/${architecture}`);
  if (config.diffIds.length !== layers.length)
    throw new RegistryError(
      "invalid_image",
      `the image has ${layers.length} layers, and ${config.diffIds.length} by its configuration`,
    );
}
