import { type BatchExecResult, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Caller } from "../audit/caller.ts";
import { errorBody } from "../http/render-error.ts";
import type { SessionRow } from "../sessions/store.ts";
import { execBuffered } from "./exec.ts";
import type { CommandInput, StartExecDeps } from "./open-exec.ts";
import type { OutputQuota } from "./output-quota.ts";

type BatchItem = BatchExecResult["results"][number];

/** One command in several sessions, in parallel. An item that fails says so; the others are not affected. */
export async function execBatch(
  deps: StartExecDeps,
  scope: Scope,
  {
    sessionIds,
    input,
    by,
    room,
  }: { sessionIds: string[]; input: CommandInput; by: Caller; room: OutputQuota },
): Promise<{ result: BatchExecResult; sessions: SessionRow[] }> {
  const ids = [...new Set(sessionIds)];
  const limitBytes = Math.min(
    LIMITS.execOutputBytes,
    Math.floor(LIMITS.batchOutputTotalBytes / (2 * ids.length)),
  );
  const sessions: SessionRow[] = [];
  const results = await Promise.all(
    ids.map(async (sessionId): Promise<BatchItem> => {
      try {
        const { session, result } = await execBuffered(deps, scope, {
          sessionId,
          input,
          by,
          room,
          limitBytes,
        });
        sessions.push(session);
        return { session_id: sessionId, ...result };
      } catch (error) {
        return { session_id: sessionId, ...errorBody(error) };
      }
    }),
  );
  return { result: { results }, sessions };
}
