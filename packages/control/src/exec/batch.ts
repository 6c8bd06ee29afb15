import { type BatchExecResult, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Caller } from "../audit/caller.ts";
import { errorBody } from "../http/render-error.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { ExecDeps } from "./deps.ts";
import { execBuffered } from "./exec.ts";
import type { CommandInput } from "./open-exec.ts";
import type { OutputQuota } from "./output-quota.ts";

type BatchItem = BatchExecResult["results"][number];

/**
 * Runs one command in several sessions in parallel. A failed item carries its error; the other items are not affected.
 */
export async function execBatch(
  deps: ExecDeps,
  scope: Scope,
  {
    sessionIds,
    input,
    by,
    reservation,
  }: { sessionIds: string[]; input: CommandInput; by: Caller; reservation: OutputQuota },
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
          reservation,
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
