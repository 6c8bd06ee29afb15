import { errorRow, type FileBatchResult, type FileEncoding, FilePath, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { waitForLive } from "../guest/wait-for-live.ts";
import { errorBody } from "../http/render-error.ts";
import { validationError } from "../http/validation.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { decodeContent } from "./content.ts";
import { writeBytes } from "./write.ts";

interface FileOfBatch {
  path: string;
  content: string;
  encoding?: FileEncoding | null;
}
type Item = FileBatchResult["results"][number];
/** What is to be written, or why it cannot be. */
type Prepared = Buffer | ApiError;

/** Several files, one after the other; each has an outcome of its own. */
export async function writeBatch(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, files, signal }: { sessionId: string; files: FileOfBatch[]; signal: AbortSignal },
): Promise<FileBatchResult> {
  const startedAt = performance.now();
  const prepared = prepare(files);
  const { confirm, release } = deps.activity.lease(scope.orgId, sessionId);
  try {
    // What is wrong with the session is the answer to the whole call.
    await waitForLive(deps, scope, sessionId);
    confirm();
    const results: Item[] = [];
    for (const [index, { path }] of files.entries()) {
      const bytes = prepared[index] as Prepared;
      const error = await writeOne(deps, scope, { sessionId, path, bytes, signal }).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      if (isAboutMachine(error) && !results.some(({ ok }) => ok)) throw error;
      results.push({
        path,
        ok: error === undefined,
        ...(error !== undefined && { error: errorBody(error).error }),
      });
    }
    return { results, duration_ms: Math.round(performance.now() - startedAt) };
  } finally {
    release();
  }
}

/** Throws when the batch as a whole is refused: then nothing of it is written. */
function prepare(files: FileOfBatch[]): Prepared[] {
  const prepared = files.map(prepareOne);
  const total = prepared.reduce((sum, bytes) => sum + (Buffer.isBuffer(bytes) ? bytes.length : 0), 0);
  if (total <= LIMITS.batchFilesBytes && !prepared.some(isTooLarge)) return prepared;
  throw new ApiError(
    "payload_too_large",
    `files: their contents must be at most ${LIMITS.batchFilesBytes} bytes together`,
  );
}

function prepareOne(file: FileOfBatch): Prepared {
  const path = FilePath.safeParse(file.path);
  try {
    const bytes = decodeContent(file);
    return path.success ? bytes : validationError(withField(path.error.issues), file);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** An issue of the path alone names no field. */
function withField<T extends { path: PropertyKey[] }>(issues: readonly T[]): T[] {
  return issues.map((issue) => ({ ...issue, path: ["path"] }));
}

function isTooLarge(prepared: Prepared): boolean {
  return prepared instanceof ApiError && prepared.code === "payload_too_large";
}

async function writeOne(
  deps: MoveDeps,
  scope: Scope,
  { bytes, ...file }: { sessionId: string; path: string; bytes: Prepared; signal: AbortSignal },
): Promise<void> {
  if (!Buffer.isBuffer(bytes)) throw bytes;
  await writeBytes(deps, scope, { ...file, bytes });
}

/** Trying again later may help all files alike, and none is written yet. */
function isAboutMachine(error: unknown): boolean {
  return error instanceof ApiError && errorRow(error.code).retryable;
}
