/** Fetches content by its digest into a file. A broken transfer continues where it ended, also in a later process. */
import { rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { hasCode } from "@vivarium/kit/unknown-error";
import { fileNameOf } from "./digest.ts";
import type { Descriptor } from "./documents.ts";
import { PartialFile } from "./partial-file.ts";
import { RegistryError } from "./registry-error.ts";
import type { ImageSource, Sent } from "./source.ts";
import { isWorthRetrying, waitBefore } from "./with-retries.ts";

export interface BlobInput {
  blob: Descriptor;
  directory: string;
  /** Called with the number of bytes that are there. */
  onBytes: (bytes: number) => void;
}

/** Path of the file, which is whole, verified and durable under its name. One caller at a time for a digest and directory. */
export async function fetchBlob(
  registry: ImageSource,
  input: BlobInput,
  signal: AbortSignal,
): Promise<string> {
  const { blob, directory, onBytes } = input;
  const path = join(directory, fileNameOf(blob.digest));
  if (await isWhole(path, blob)) {
    onBytes(blob.size);
    return path;
  }
  const file = await PartialFile.open(`${path}.partial`, blob.digest);
  try {
    await complete(registry, file, input, signal);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.partial`, path);
  return path;
}

/** A file was verified and durable before it came under its final name: the size is a sufficient check. */
async function isWhole(path: string, { size }: Descriptor): Promise<boolean> {
  try {
    const found = await stat(path);
    if (found.isFile() && found.size === size) return true;
    await rm(path, { recursive: true });
    return false;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

async function complete(
  registry: ImageSource,
  file: PartialFile,
  input: BlobInput,
  signal: AbortSignal,
): Promise<void> {
  if (file.size > input.blob.size) await file.startOver();
  const wasKept = file.size > 0;
  await receiveAll(registry, file, input, signal);
  // After a power cut bytes of a kept file may be lost while its length is not.
  if (wasKept && !file.isRight) {
    await file.startOver();
    await receiveAll(registry, file, input, signal);
  }
  if (file.isRight) return;
  await file.startOver();
  throw new RegistryError("bad_digest", `the content of ${input.blob.digest} has another digest`);
}

async function receiveAll(
  registry: ImageSource,
  file: PartialFile,
  input: BlobInput,
  signal: AbortSignal,
): Promise<void> {
  const { retries, resumes, retryMs } = registry.limits;
  let failures = 0;
  for (let attempts = 0; file.size < input.blob.size; attempts++) {
    const before = file.size;
    try {
      await receive(registry, file, input, signal);
    } catch (error) {
      if (!isWorthRetrying(error) || attempts >= resumes) throw error;
      failures = file.size > before ? 0 : failures + 1;
      if (failures > retries) throw error;
      await sleep(waitBefore(failures, retryMs), signal);
      signal.throwIfAborted();
    }
  }
}

/** One request. */
async function receive(
  registry: ImageSource,
  file: PartialFile,
  { blob, onBytes }: BlobInput,
  signal: AbortSignal,
): Promise<void> {
  const answer = await registry.blob(blob.digest, file.size, signal);
  try {
    await placeAnswer(answer, file, blob);
  } catch (error) {
    await answer.discard();
    throw error;
  }
  onBytes(file.size);
  for await (const chunk of answer.body) {
    if (file.size + chunk.byteLength > blob.size)
      throw new RegistryError(
        "bad_digest",
        `the content of ${blob.digest} is longer than ${blob.size} bytes`,
      );
    await file.append(chunk);
    onBytes(file.size);
  }
  if (file.size < blob.size)
    throw new RegistryError(
      "registry_failed",
      `${answer.sender} sends ${file.size} of ${blob.size} bytes of ${blob.digest}`,
      {
        isTransient: true,
      },
    );
}

/** Makes the end of the file the place where the answer continues. */
async function placeAnswer(answer: Sent, file: PartialFile, { digest, size }: Descriptor): Promise<void> {
  if (answer.status === 206) {
    const [, start, total] =
      /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(answer.valuesOf("content-range")[0] ?? "") ?? [];
    if (Number(start) === file.size && (total === "*" || Number(total) === size)) return;
  }
  await file.startOver();
  if (answer.status !== 200)
    throw new RegistryError(
      "registry_failed",
      `${answer.sender} does not continue ${digest} where it was asked to`,
      {
        isTransient: true,
      },
    );
  const length = Number(answer.valuesOf("content-length")[0] ?? size);
  if (length !== size)
    throw new RegistryError(
      "bad_digest",
      `the content of ${digest} has ${length} bytes, and ${size} by the manifest`,
    );
}
