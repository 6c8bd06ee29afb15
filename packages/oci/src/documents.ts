/** Manifests and indexes: which types are read, and what must be in them. A document of two types at once is refused. */
import { z } from "zod";
import { isDigest } from "./digest.ts";
import { RegistryError } from "./registry-error.ts";

const OCI = "application/vnd.oci.image";
const DOCKER = "application/vnd.docker";
const INDEX_TYPES = [`${OCI}.index.v1+json`, `${DOCKER}.distribution.manifest.list.v2+json`];
const MANIFEST_TYPES = [`${OCI}.manifest.v1+json`, `${DOCKER}.distribution.manifest.v2+json`];
const CONFIG_TYPES = [`${OCI}.config.v1+json`, `${DOCKER}.container.image.v1+json`];
/** How a layer is compressed, by its type. */
const LAYER_TYPES: Record<string, LayerCompression> = {
  [`${OCI}.layer.v1.tar`]: "none",
  [`${OCI}.layer.v1.tar+gzip`]: "gzip",
  [`${OCI}.layer.v1.tar+zstd`]: "zstd",
  [`${DOCKER}.image.rootfs.diff.tar`]: "none",
  [`${DOCKER}.image.rootfs.diff.tar.gzip`]: "gzip",
  [`${DOCKER}.image.rootfs.diff.tar.zstd`]: "zstd",
};

export const ACCEPTED = [...INDEX_TYPES, ...MANIFEST_TYPES].join(", ");
export type LayerCompression = "none" | "gzip" | "zstd";

/** `urls` of a descriptor is not read: content comes from the registry alone. */
const Descriptor = z.object({
  mediaType: z.string().max(255),
  digest: z.string().refine(isDigest, "expected sha256: and 64 hex digits, or sha512: and 128"),
  size: z.int().positive(),
});
export type Descriptor = z.infer<typeof Descriptor>;

const Platform = z.object({ os: z.string(), architecture: z.string(), variant: z.string().optional() });
const Index = z.object({
  schemaVersion: z.literal(2),
  manifests: z.array(Descriptor.extend({ platform: Platform.nullish() })),
});
export type Index = z.infer<typeof Index>;

const Manifest = z.object({ schemaVersion: z.literal(2), config: Descriptor, layers: z.array(Descriptor) });
export type Manifest = z.infer<typeof Manifest>;

/** Fields of documents of all types: those of another type must be absent. */
const KEYS = ["manifests", "config", "layers", "fsLayers", "signatures"];

/** Reads a document by the type that its server gave it. */
export function readManifestOrIndex(contentType: string | undefined, bytes: Buffer): Manifest | Index {
  const type = contentType?.split(";")[0]?.trim().toLowerCase() ?? "";
  const document = readJson(bytes, "the manifest");
  const { mediaType, schemaVersion } = document;
  if (schemaVersion === 1 || type.startsWith(`${DOCKER}.distribution.manifest.v1+`))
    throw new RegistryError(
      "unsupported_media_type",
      "the manifest has schema 1, which no registry should serve any more",
    );
  const isIndex = INDEX_TYPES.includes(type);
  if (!isIndex && !MANIFEST_TYPES.includes(type))
    throw new RegistryError(
      "unsupported_media_type",
      `the manifest has the type "${shown(type)}"; expected one of ${ACCEPTED}`,
    );
  if (mediaType !== undefined && mediaType !== type)
    throw new RegistryError(
      "invalid_image",
      `the manifest says another type than its server, "${shown(type)}"`,
    );
  const own = isIndex ? ["manifests"] : ["config", "layers"];
  if (KEYS.some((key) => Object.hasOwn(document, key) !== own.includes(key)))
    throw new RegistryError(
      "invalid_image",
      `the manifest can be read in two ways, or lacks ${own.join(" or ")}`,
    );
  return readAs<Manifest | Index>(isIndex ? Index : Manifest, document, "the manifest");
}

export function isIndex(document: Manifest | Index): document is Index {
  return "manifests" in document;
}

/** Whether an entry of an index may lead to an image: other entries are signatures, provenance and the like. */
export function isImageOrIndex({ mediaType }: Descriptor): boolean {
  return [...INDEX_TYPES, ...MANIFEST_TYPES].includes(mediaType);
}

export function checkConfigType({ mediaType }: Descriptor): void {
  if (CONFIG_TYPES.includes(mediaType)) return;
  throw new RegistryError("unsupported_media_type", `"${shown(mediaType)}" is not a container image`);
}

export function compressionOf({ mediaType }: Descriptor): LayerCompression {
  const compression = Object.hasOwn(LAYER_TYPES, mediaType) ? LAYER_TYPES[mediaType] : undefined;
  if (compression !== undefined) return compression;
  throw new RegistryError(
    "unsupported_media_type",
    `a layer has the type "${shown(mediaType)}", which cannot be unpacked`,
  );
}

/** Any JSON object. */
export function readJson(bytes: Buffer, what: string): Record<string, unknown> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return z.record(z.string(), z.unknown()).parse(JSON.parse(text));
  } catch {
    throw new RegistryError("invalid_image", `${what} is not a JSON object`);
  }
}

export function readAs<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const { path = [], message = "" } = read.error.issues[0] ?? {};
  throw new RegistryError("invalid_image", `${what} has a malformed ${path.join(".")}: ${shown(message)}`);
}

/** Text of a registry within a message: short, and printable. */
function shown(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, "?").slice(0, 100);
}
