import type { FileUploaded } from "@vivarium/contract/api";
import type { PacedBody } from "@vivarium/http1/body-rate";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { explainBreak, findEndError } from "../guest/explain-break.ts";
import { isMachineMoved, useMachine } from "../guest/use-machine.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { CHANGE_BREAK_TEXTS, WRITTEN } from "./change.ts";
import type { FileCall } from "./query.ts";

/** Uploads a file of any size, only as fast as the guest takes it. An upload that breaks off leaves nothing behind. */
export async function uploadFile(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, path, body, signal }: FileCall & { body: PacedBody },
): Promise<FileUploaded> {
  try {
    const { result, release } = await useMachine(deps, scope, { sessionId }, async (session) => {
      const call = { method: "PUT", path: "files/write", query: { path }, source: body, signal } as const;
      const startedAt = performance.now();
      const written = await deps.nodes
        .guestJson(machineIdOf(session), call, WRITTEN)
        .catch(async (error: unknown) => {
          throw await explainFailure(deps, session, error);
        });
      return { ...written, durationMs: Math.round(performance.now() - startedAt) };
    });
    release();
    return { path, bytes: result.bytes, sha256: result.sha256, duration_ms: result.durationMs };
  } catch (error) {
    body.discardRest();
    throw error;
  }
}

/** The error for the caller. No error leads to a second attempt, because the body's bytes cannot be read again. */
async function explainFailure(deps: MoveDeps, session: SessionRow, error: unknown): Promise<unknown> {
  if (!(error instanceof NodeError)) return error;
  switch (error.failure) {
    case "unreachable":
      return error;
    case "refused":
      return isMachineMoved(error) ? ((await findEndError(deps.db, session)) ?? machineMoved(error)) : error;
    case "aborted":
      return error.cause ?? error;
    default:
      return await explainBreak(deps, session, CHANGE_BREAK_TEXTS, error);
  }
}

function machineMoved(cause: NodeError): ApiError {
  return new ApiError(
    "session_not_live",
    "the session was paused as the upload began; nothing was written, upload the file again",
    { cause },
  );
}
