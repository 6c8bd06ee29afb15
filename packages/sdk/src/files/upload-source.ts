import type { RawBody } from "../transport.ts";

/**
 * Sources of an upload: bytes, a Blob, a stream or any other async iterable of bytes, or a local file (in Node). Bytes,
 * Blobs and local files can be read again, so an upload of them that got no answer may be repeated; the other sources
 * are read once.
 */
export type UploadSource =
  | Uint8Array<ArrayBuffer>
  | Blob
  | AsyncIterable<Uint8Array>
  | { file: string | URL };

/** A source as a body of requests. `close` releases the rest of the source; `failure` is the source's own. */
export interface UploadBody extends RawBody {
  readonly failure: { cause: unknown } | undefined;
  close(): void;
}

export async function openUpload(source: UploadSource): Promise<UploadBody> {
  if ("file" in source) return await openFile(source.file);
  if (source instanceof Uint8Array || source instanceof Blob) return replayable(source);
  return new OnceReadable(source);
}

/** A pipe or a device has no size, and a file of the kernel reports 0: both are read to learn their length. */
async function openFile(file: string | URL): Promise<UploadBody> {
  const [{ createReadStream, openAsBlob }, { readFile, stat }] = await Promise.all([
    import("node:fs"),
    import("node:fs/promises"),
  ]);
  const found = await stat(file);
  if (!found.isFile()) return new OnceReadable(opening(() => createReadStream(file)));
  return replayable(found.size === 0 ? new Uint8Array(await readFile(file)) : await openAsBlob(file));
}

/** Opened with the first read: an attempt that fails earlier leaves nothing open. */
async function* opening(open: () => AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield* open();
}

function replayable(bytes: Uint8Array<ArrayBuffer> | Blob): UploadBody {
  return { open: () => bytes, canBeSent: true, failure: undefined, close: () => undefined };
}

/**
 * Pulls from the source only when the connection takes more. Until the first pull nothing is lost, so that an attempt
 * without a connection can be followed by another.
 */
class OnceReadable implements UploadBody {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #iterator: AsyncIterator<Uint8Array>;
  canBeSent = true;
  failure: { cause: unknown } | undefined;

  constructor(source: AsyncIterable<Uint8Array>) {
    // A stream of Node that fails before the first read ends the program unless it has an error listener; the read
    // fails too.
    if ("on" in source && typeof source.on === "function") source.on("error", () => undefined);
    this.#source = source;
    this.#iterator = source[Symbol.asyncIterator]();
  }

  open(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      { pull: (controller) => this.#pull(controller) },
      { highWaterMark: 0 },
    );
  }

  /**
   * Not awaited: a source that never gives anything would never end either. A stream of Node is destroyed directly,
   * since its iterator notices only between two reads.
   */
  close(): void {
    if ("destroy" in this.#source && typeof this.#source.destroy === "function") this.#source.destroy();
    this.#iterator.return?.().catch(() => undefined);
  }

  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    this.canBeSent = false;
    try {
      const { done, value } = await this.#iterator.next();
      if (done) controller.close();
      else if (!(value instanceof Uint8Array))
        throw new TypeError(`the source gave ${typeof value}; expected bytes`);
      else if (value.byteLength > 0) controller.enqueue(value);
      else await this.#pull(controller);
    } catch (cause) {
      this.failure = { cause };
      controller.error(cause);
    }
  }
}
