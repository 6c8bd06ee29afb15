import type { FileUploaded } from "@vivarium/contract/api";
import type { PacedBody } from "@vivarium/http1/body-rate";
import type { Scope } from "../access/principal.ts";
import { NodeError } from "../fleet/node-error.ts";
import { brokenOff, endedMeanwhile } from "../guest/broken-off.ts";
import { type GuestDeps, isMove, useMachine } from "../guest/use-machine.ts";
import { ApiError } from "../http/api-error.ts";
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
  deps: GuestDeps,
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
    body.discardRest();
    throw error;
  }
}

/** What was read of the body cannot be sent a second time, so nothing begins anew here. */
async function failure(deps: GuestDeps, session: SessionRow, error: unknown): Promise<unknown> {
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
