/** Downloads a file of a session, as a stream or into a local file. */
import { errorFromNetwork, VivariumError } from "../errors.ts";
import { type CallOptions, send, type Transport } from "../transport.ts";

/** Yields the bytes of a file, with back-pressure. Leaving the loop ends the transfer. */
export async function* readStream(
  transport: Transport,
  path: string,
  query: { path: string },
  options: CallOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const response = await send(transport, {
    method: "GET",
    path,
    query,
    headers: { accept: "application/octet-stream" },
    repeatable: true,
    ...options,
  });
  const expected = Number(response.headers.get("content-length") ?? Number.NaN);
  let bytes = 0;
  try {
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      yield chunk;
    }
  } catch (cause) {
    options.signal?.throwIfAborted();
    throw brokenOff(query.path, errorFromNetwork(cause, transport.url));
  }
  if (Number.isFinite(expected) && bytes !== expected) throw brokenOff(query.path);
}

/** Saves the bytes as a local file, whole or not at all: they are written to another file, which is then renamed. */
export async function saveStream(
  content: AsyncIterable<Uint8Array>,
  file: string,
): Promise<{ bytes: number; sha256: string }> {
  const [{ createHash, randomUUID }, { open, rename, rm }] = await Promise.all([
    import("node:crypto"),
    import("node:fs/promises"),
  ]);
  const unfinished = `${file}.${randomUUID()}.part`;
  const hash = createHash("sha256");
  let bytes = 0;
  const handle = await open(unfinished, "wx");
  try {
    for await (const chunk of content) {
      hash.update(chunk);
      bytes += chunk.byteLength;
      await handle.writeFile(chunk);
    }
    await handle.close();
    await rename(unfinished, file);
  } catch (error) {
    await handle.close();
    await rm(unfinished, { force: true });
    throw error;
  }
  return { bytes, sha256: hash.digest("hex") };
}

function brokenOff(path: string, cause?: unknown): VivariumError {
  const message = `the download of ${path} broke off; download it again`;
  return new VivariumError("stream_interrupted", message, { status: 200, retryable: true, cause });
}
