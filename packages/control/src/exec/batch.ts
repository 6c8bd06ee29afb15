import { type BatchExecResult, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { auditDeniedItem } from "../audit/answers.ts";
import { errorBody } from "../http/render-error.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { ExecDeps } from "./deps.ts";
import { type BufferedExec, execBuffered } from "./exec.ts";

type BatchItem = BatchExecResult["results"][number];

/** Runs one command in several sessions in parallel. A failed item carries its error and does not affect the others. */
export async function execBatch(
  deps: ExecDeps,
  scope: Scope,
  sessionIds: string[],
  exec: BufferedExec,
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
        const { session, result } = await execBuffered(deps, scope, sessionId, { ...exec, limitBytes });
        sessions.push(session);
        return { session_id: sessionId, ...result };
      } catch (error) {
        auditDeniedItem(deps, error, { by: exec.by, operation: "execBatch", sessionId });
        return { session_id: sessionId, ...errorBody(error) };
      }
    }),
  );
  return { result: { results }, sessions };
}
