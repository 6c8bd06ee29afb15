/** Writes several files, one after the other. Each has its own result. */
import { errorRow, type FileBatchResult, FilePath, type FileWrite, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { waitForLive } from "../guest/wait-for-live.ts";
import { errorBody } from "../http/render-error.ts";
import { validationError } from "../http/validation.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { writeBytes } from "./change.ts";
import { decodeContent } from "./content.ts";

type Item = FileBatchResult["results"][number];
/** The bytes of a file, or the error that refuses it. */
type Prepared = Buffer | ApiError;

export async function writeBatch(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, files, signal }: { sessionId: string; files: FileWrite[]; signal: AbortSignal },
): Promise<FileBatchResult> {
  const startedAt = performance.now();
  const prepared = prepare(files);
  const { confirm, release } = deps.activity.lease(scope.orgId, sessionId);
  try {
    // An error of the session fails the whole call.
    await waitForLive(deps, scope, sessionId);
    confirm();
    const results: Item[] = [];
    for (const [index, { path }] of files.entries()) {
      const bytes = prepared[index] as Prepared;
      const error =
        bytes instanceof ApiError
          ? bytes
          : await writeBytes(deps, scope, { sessionId, path, bytes, signal }).catch(
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

/** Decodes all files before the first write. Throws when one, or all together, are too large. */
function prepare(files: FileWrite[]): Prepared[] {
  const prepared = files.map(prepareOne);
  const total = prepared.reduce((sum, bytes) => sum + (Buffer.isBuffer(bytes) ? bytes.length : 0), 0);
  if (total <= LIMITS.batchFilesBytes && !prepared.some(isTooLarge)) return prepared;
  throw new ApiError(
    "payload_too_large",
    `files: their contents must be at most ${LIMITS.batchFilesBytes} bytes together`,
  );
}

function prepareOne(file: FileWrite): Prepared {
  const path = FilePath.safeParse(file.path);
  try {
    const bytes = decodeContent(file);
    return path.success ? bytes : validationError(withField(path.error.issues), file);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
}

/** Adds the field `path` to issues of the path's own schema, which name no field. */
function withField<T extends { path: PropertyKey[] }>(issues: readonly T[]): T[] {
  return issues.map((issue) => ({ ...issue, path: ["path"] }));
}

function isTooLarge(prepared: Prepared): boolean {
  return prepared instanceof ApiError && prepared.code === "payload_too_large";
}

/** Whether the error concerns all files, as retryable ones do. If no file is written yet, the whole call then fails. */
function isAboutMachine(error: unknown): boolean {
  return error instanceof ApiError && errorRow(error.code).retryable;
}
