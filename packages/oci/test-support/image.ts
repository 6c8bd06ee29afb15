/** Makes images, and serves them as a registry does. */
import { createHash, randomBytes } from "node:crypto";
import type { RequestListener, ServerResponse } from "node:http";

export interface Blob {
  mediaType: string;
  digest: string;
  size: number;
}

export interface MadeImage {
  /** Content by digest: layers, configuration, manifest, index. */
  blobs: Map<string, Buffer>;
  /** Types of the documents among them. */
  types: Map<string, string>;
  /** Digest of the document to which the tag points. */
  top: string;
  manifest: string;
  layers: Blob[];
}

export const TYPES = {
  index: "application/vnd.oci.image.index.v1+json",
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  gzip: "application/vnd.oci.image.layer.v1.tar+gzip",
};
export const DOCKER_TYPES: typeof TYPES = {
  index: "application/vnd.docker.distribution.manifest.list.v2+json",
  manifest: "application/vnd.docker.distribution.manifest.v2+json",
  config: "application/vnd.docker.container.image.v1+json",
  gzip: "application/vnd.docker.image.rootfs.diff.tar.gzip",
};

export function sha256(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

export interface ImageParts {
  layers?: Buffer[];
  types?: typeof TYPES;
  isIndexed?: boolean;
  /** Changes documents before they are named by their digest. */
  config?: object;
  manifest?: object;
  index?: object;
  platform?: object;
}

export function makeImage(parts: ImageParts = {}): MadeImage {
  const {
    layers: contents = [randomBytes(2_000), randomBytes(3_000)],
    types = TYPES,
    isIndexed = true,
  } = parts;
  const image: MadeImage = { blobs: new Map(), types: new Map(), top: "", manifest: "", layers: [] };
  const add = (mediaType: string, bytes: Buffer): Blob => {
    const digest = sha256(bytes);
    image.blobs.set(digest, bytes);
    image.types.set(digest, mediaType);
    return { mediaType, digest, size: bytes.length };
  };
  const addJson = (mediaType: string, value: object) => add(mediaType, Buffer.from(JSON.stringify(value)));
  image.layers = contents.map((bytes) => add(types.gzip, bytes));
  const config = addJson(types.config, {
    os: "linux",
    architecture: "amd64",
    config: {
      Env: ["PATH=/bin", "A=b=c"],
      Entrypoint: ["/init"],
      Cmd: null,
      WorkingDir: "/srv",
      User: "web",
      Labels: { a: "b" },
    },
    rootfs: {
      type: "layers",
      diff_ids: contents.map((bytes) => sha256(Buffer.from([...bytes.subarray(0, 8)]))),
    },
    ...parts.config,
  });
  const manifest = addJson(types.manifest, {
    schemaVersion: 2,
    mediaType: types.manifest,
    config,
    layers: image.layers,
    ...parts.manifest,
  });
  image.manifest = manifest.digest;
  const entries = [
    {
      ...manifest,
      digest: `sha256:${"a".repeat(64)}`,
      platform: { os: "linux", architecture: "arm64", variant: "v8" },
    },
    { ...manifest, platform: { os: "linux", architecture: "amd64", ...parts.platform } },
    { ...manifest, digest: `sha256:${"b".repeat(64)}`, platform: { os: "unknown", architecture: "unknown" } },
  ];
  const index = { schemaVersion: 2, mediaType: types.index, manifests: entries, ...parts.index };
  image.top = isIndexed ? addJson(types.index, index).digest : manifest.digest;
  return image;
}

/** Puts another document in front of the image, such as one more index. */
export function putInFront(image: MadeImage, mediaType: string, document: object): MadeImage {
  const bytes = Buffer.from(JSON.stringify(document));
  const top = sha256(bytes);
  return {
    ...image,
    blobs: new Map(image.blobs).set(top, bytes),
    types: new Map(image.types).set(top, mediaType),
    top,
  };
}

export const REPOSITORY = "team/app";

/** Serves the image under every tag. */
export function serveImage(image: MadeImage, repository = REPOSITORY): RequestListener {
  return ({ url = "", headers }, response) => {
    if (url === "/v2/") return void response.writeHead(200).end("{}");
    const [, kind, name = ""] = new RegExp(`^/v2/${repository}/(manifests|blobs)/(.+)$`).exec(url) ?? [];
    const digest = kind === "manifests" && !name.includes(":") ? image.top : name;
    const bytes = image.blobs.get(digest);
    if (!bytes) return void response.writeHead(404).end('{"errors":[{"code":"MANIFEST_UNKNOWN"}]}');
    const type = kind === "manifests" ? (image.types.get(digest) ?? "") : "application/octet-stream";
    sendBytes(response, bytes, type, headers.range);
  };
}

export function sendBytes(response: ServerResponse, bytes: Buffer, type: string, range?: string): void {
  const start = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
  const rest = bytes.subarray(start);
  const partly = start > 0 && { "content-range": `bytes ${start}-${bytes.length - 1}/${bytes.length}` };
  response.writeHead(partly ? 206 : 200, { "content-type": type, "content-length": rest.length, ...partly });
  response.end(rest);
}
