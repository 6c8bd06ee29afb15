/**
 * Emits events for sessions that could not be created or woken for lack of capacity. They inform the whole
 * organisation, not only the caller.
 */
import { type ErrorCode, type EventType, errorRow } from "@vivarium/contract/api";
import type { Principal } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { oneLine } from "../http/render-error.ts";
import { type NewEvent, rowOf } from "./append.ts";
import { insertUnlessRecent } from "./store.ts";

/** Codes that emit an event. A caller's mistakes concern only that caller, and an unreachable node refuses nothing. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  "payment_required",
  "egress_capped",
  "account_concurrency_exceeded",
  "key_concurrency_exceeded",
  "size_unavailable",
  "node_disk_pressure",
]);

type Attempt = Omit<NewEvent, "type" | "data"> & {
  type: Extract<EventType, "session.wake_refused" | "session.create_refused">;
  op: string;
};

/** The attempt of a create. `projectId` is checked before a lack of capacity can refuse the create. */
export function createAttempt(
  principal: Principal,
  projectId: string | null | undefined,
  op: string,
): Attempt {
  return {
    type: "session.create_refused",
    orgId: principal.orgId,
    projectId: projectId ?? principal.scopedProjectId ?? principal.defaultProjectId,
    op,
  };
}

/** Does the work, and emits an event if it is refused for lack of capacity. */
export async function emitIfRefused<T>(db: Database, attempt: Attempt, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // Written outside the work's transaction, which was rolled back. The refusal is returned even if the event cannot
    // be stored.
    if (error instanceof ApiError && REFUSALS.has(error.code))
      await emitRefusal(db, attempt, error).catch(() => undefined);
    throw error;
  }
}

/** Emits at most one event a minute for the same refusal, so that a caller who retries does not flood the readers. */
async function emitRefusal(
  db: Database,
  { op, ...attempt }: Attempt,
  { code, message, ...error }: ApiError,
): Promise<void> {
  const retryAfter = error.retryAfterS === undefined ? errorRow(code).retryAfterS : error.retryAfterS;
  const data = { code, reason: oneLine(message), ...(retryAfter != null && { retry_after: retryAfter }), op };
  await insertUnlessRecent(db, rowOf({ ...attempt, data }));
}
