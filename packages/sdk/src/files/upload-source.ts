/** Turns the source of an upload into the body of a request. */
import type { RawBody } from "../transport.ts";

/**
 * The source of an upload: bytes, a Blob, a stream or another async iterable of bytes, or a local file (in Node). An
 * upload without an answer is repeated if its source can be read again: bytes, a Blob or a regular file.
 */
export type UploadSource =
  | Uint8Array<ArrayBuffer>
  | Blob
  | AsyncIterable<Uint8Array>
  | { file: string | URL };

/** The body of an upload. `failure` is the error of the source itself; `close` releases the source. */
export interface UploadBody extends RawBody {
  readonly failure: { cause: unknown } | undefined;
  close(): void;
}

export async function openUpload(source: UploadSource): Promise<UploadBody> {
  if ("file" in source) return await openFile(source.file);
  if (source instanceof Uint8Array || source instanceof Blob) return replayable(source);
  return new OnceReadable(source);
}

/** A pipe or a device is streamed. A file of size 0 is read, since files in /proc report 0 too. */
async function openFile(file: string | URL): Promise<UploadBody> {
  const [{ createReadStream, openAsBlob }, { readFile, stat }] = await Promise.all([
    import("node:fs"),
    import("node:fs/promises"),
  ]);
  const found = await stat(file);
  if (!found.isFile()) return new OnceReadable(opening(() => createReadStream(file)));
  return replayable(found.size === 0 ? new Uint8Array(await readFile(file)) : await openAsBlob(file));
}

/** Opens the file at the first read, so that an attempt that fails earlier leaves nothing open. */
async function* opening(open: () => AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield* open();
}

function replayable(bytes: Uint8Array<ArrayBuffer> | Blob): UploadBody {
  return { open: () => bytes, canBeSent: true, failure: undefined, close: () => undefined };
}

/**
 * A source that can be read once. It is read only when the connection takes more bytes, so that an attempt that never
 * got a connection can be repeated.
 */
class OnceReadable implements UploadBody {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #iterator: AsyncIterator<Uint8Array>;
  canBeSent = true;
  failure: { cause: unknown } | undefined;

  constructor(source: AsyncIterable<Uint8Array>) {
    // Without a listener, a Node stream that fails before the first read would end the program. The read fails too.
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
   * Releases the source. The iterator's end is not awaited: a source that never yields would never end. A Node stream
   * is destroyed directly, since its iterator ends only between two reads.
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
