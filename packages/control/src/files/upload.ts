import type { FileUploaded } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { brokenOff, endedMeanwhile } from "../guest/broken-off.ts";
import { isMove, useMachine } from "../guest/use-machine.ts";
import type { PacedBody } from "../http/body-pace.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { CHANGE_WORDS } from "./paths.ts";
import { WRITTEN } from "./write.ts";

interface Upload {
  sessionId: string;
  path: string;
  body: PacedBody;
  signal: AbortSignal;
}

/** A file of any size: only as fast as the guest takes it. What breaks off leaves nothing behind. */
export async function uploadFile(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, path, body, signal }: Upload,
): Promise<FileUploaded> {
  try {
    const { result, release } = await useMachine(deps, scope, { sessionId }, async (session) => {
      const call = { method: "PUT", path: "files/write", query: { path }, source: body, signal } as const;
      const startedAt = performance.now();
      const written = await deps.nodes
        .guestJson(machineIdOf(session), call, WRITTEN)
        .catch(async (error: unknown) => {
          throw await failure(deps, session, error);
        });
      return { ...written, durationMs: Math.round(performance.now() - startedAt) };
    });
    release();
    return { path, bytes: result.bytes, sha256: result.sha256, duration_ms: result.durationMs };
  } catch (error) {
    body.letGo();
    throw error;
  }
}

/** What was read of the body cannot be sent a second time, so nothing begins anew here. */
async function failure(deps: MoveDeps, session: SessionRow, error: unknown): Promise<unknown> {
  if (!(error instanceof NodeError)) return error;
  switch (error.failure) {
    case "unreachable":
      return error;
    case "refused":
      return isMove(error) ? ((await endedMeanwhile(deps.db, session)) ?? movedAway(error)) : error;
    case "aborted":
      return error.cause ?? error;
    default:
      return await brokenOff(deps, session, CHANGE_WORDS, error);
  }
}

function movedAway(cause: NodeError): ApiError {
  return new ApiError(
    "session_not_live",
    "the session was paused as the upload began; nothing was written, upload the file again",
    { cause },
  );
}
