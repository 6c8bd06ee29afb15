/**
 * An image in the directory of an OCI layout: `oci-layout`, `index.json` and `blobs/ALGORITHM/HEX`. A program that is not
 * trusted has written the directory: files in it may lie, change while they are read, or be no files, and the opener follows
 * no link.
 */

import { z } from "zod";
import { isDigest } from "./digest.ts";
import { readAs, readJson } from "./documents.ts";
import { PULL_LIMITS, type PullLimits } from "./limits.ts";
import { pacedChunks } from "./paced-chunks.ts";
import { type FetchInput, fetchImage, type PulledImage } from "./pull-image.ts";
import { readDocument } from "./registry.ts";
import { RegistryError } from "./registry-error.ts";
import type { ImageSource, Sent } from "./source.ts";
import { withinTime } from "./within-time.ts";

export interface LayoutFile {
  sizeBytes: number;
  /** Fails if it has fewer bytes than `sizeBytes` by now. */
  content: AsyncIterable<Uint8Array>;
  close(): void;
}

/** Opens a file by its path within the layout. Undefined for what is no regular file, or is behind a link. */
export type OpenLayoutFile = (path: string, signal: AbortSignal) => Promise<LayoutFile | undefined>;

export interface LayoutInput extends FetchInput {
  /** By which the layout is called, without a digest. */
  reference: string;
  open: OpenLayoutFile;
  limits?: Partial<PullLimits>;
}

const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
const MARK = "oci-layout";
const MARK_BYTES = 1024;
const Mark = z.object({ imageLayoutVersion: z.literal("1.0.0") });
const SENDER = "the layout";

/** Rejects with RegistryError, with the reason of the signal, or with an error of the opener or the file system. */
export async function pullLayout(input: LayoutInput): Promise<PulledImage> {
  const layout = new ImageLayout(input.open, input.limits);
  await withinTime(layout.limits.totalMs, input.signal, (signal) => layout.checkMark(signal));
  return await fetchImage(layout, {
    ...input,
    wanted: { name: "index.json" },
    referenceOf: (_, manifestDigest) => `${input.reference}@${manifestDigest}`,
  });
}

class ImageLayout implements ImageSource {
  readonly limits: PullLimits;
  readonly #open: OpenLayoutFile;

  constructor(open: OpenLayoutFile, limits: Partial<PullLimits> = {}) {
    this.#open = open;
    this.limits = { ...PULL_LIMITS, ...limits };
  }

  async checkMark(signal: AbortSignal): Promise<void> {
    const bytes = await readDocument(await this.#send(MARK, MARK_BYTES, signal), MARK, MARK_BYTES);
    readAs(Mark, readJson(bytes, MARK), MARK);
  }

  async manifest(name: string, _accept: string, signal: AbortSignal): Promise<Sent> {
    if (isDigest(name)) return await this.#send(pathOf(name), this.limits.manifestBytes, signal);
    const sent = await this.#send(name, this.limits.manifestBytes, signal);
    return {
      ...sent,
      valuesOf: (header) => (header === "content-type" ? [INDEX_TYPE] : sent.valuesOf(header)),
    };
  }

  /** From its beginning, whatever `start` is. */
  async blob(digest: string, _start: number, signal: AbortSignal): Promise<Sent> {
    return await this.#send(pathOf(digest), this.limits.layerBytes, signal);
  }

  async #send(path: string, mostBytes: number, signal: AbortSignal): Promise<Sent> {
    const file = await this.#open(path, signal);
    if (!file) throw new RegistryError("not_found", `${SENDER} has no regular file ${path}`);
    const { sizeBytes } = file;
    if (sizeBytes > mostBytes) {
      file.close();
      throw new RegistryError(
        "too_large",
        `${path} of ${SENDER} has ${sizeBytes} bytes, more than ${mostBytes}`,
      );
    }
    return {
      sender: SENDER,
      status: 200,
      valuesOf: (header) => (header === "content-length" ? [String(sizeBytes)] : []),
      body: closing(pacedChunks(file.content, this.limits), file),
      discard: async () => file.close(),
    };
  }
}

/** A digest is hex digits by now, so nothing of it can climb. */
function pathOf(digest: string): string {
  if (!isDigest(digest)) throw new RegistryError("invalid_image", `"${digest.slice(0, 100)}" is no digest`);
  return `blobs/${digest.replace(":", "/")}`;
}

async function* closing(
  chunks: AsyncIterable<Uint8Array>,
  file: LayoutFile,
): AsyncGenerator<Uint8Array, void> {
  try {
    yield* chunks;
  } finally {
    file.close();
  }
}
