/** Sessions that could not be made or woken for want of room: told to the whole organisation, not to the caller alone. */
import { type ErrorCode, type EventType, errorRow } from "@vivarium/contract/api";
import type { Principal } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { oneLine } from "../http/render-error.ts";
import { newEventId } from "./append.ts";
import { insertUnlessRecent } from "./store.ts";

/** What a caller did wrong is nobody else's business, and a node that is away is no refusal. */
const REFUSALS: ReadonlySet<ErrorCode> = new Set([
  "payment_required",
  "egress_capped",
  "account_concurrency_exceeded",
  "key_concurrency_exceeded",
  "size_unavailable",
  "node_disk_pressure",
]);

interface Wanted {
  type: Extract<EventType, "session.wake_refused" | "session.create_refused">;
  orgId: string;
  projectId: string | null;
  sessionId?: string;
  op: string;
}

/** A session that a caller wants made. Its project is checked before anything is refused for want of room. */
export function wantedBy(principal: Principal, projectId: string | null | undefined, op: string): Wanted {
  return {
    type: "session.create_refused",
    orgId: principal.orgId,
    projectId: projectId ?? principal.scopedProjectId ?? principal.defaultProjectId,
    op,
  };
}

/** Does the work, and tells when it is refused. */
export async function tellingRefusal<T>(db: Database, wanted: Wanted, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // Whatever the transaction wrote is gone, and the refusal counts also where nobody can be told.
    if (error instanceof ApiError && REFUSALS.has(error.code))
      await tell(db, wanted, error).catch(() => undefined);
    throw error;
  }
}

/** One a minute: who tries again and again is told as often as it likes, others are not. */
async function tell(db: Database, wanted: Wanted, { code, message, ...error }: ApiError): Promise<void> {
  const { type, orgId, projectId, sessionId, op } = wanted;
  const retryAfter = error.retryAfterS === undefined ? errorRow(code).retryAfterS : error.retryAfterS;
  const data = { code, reason: oneLine(message), ...(retryAfter != null && { retry_after: retryAfter }), op };
  await insertUnlessRecent(db, {
    id: newEventId(),
    type,
    org_id: orgId,
    project_id: projectId,
    session_id: sessionId ?? null,
    data: JSON.stringify(data),
  });
}
