/**
 * Answers the wake requests of gateways: a visitor of a paused session wakes it. Each session is woken once, however
 * many visitors wait.
 */
import { errorRow, LIMITS } from "@vivarium/contract/api";
import type { Wake, WakeOutcome } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { ApiError } from "../errors/api-error.ts";
import { wakeSession } from "../moves/wake.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import { findSessionById } from "../sessions/store.ts";
import type { PreviewDeps } from "./deps.ts";
import { ensurePushed } from "./expose.ts";

/** Pause after a poll that the node did not answer. Short, because the node lets visitors wait for 30 s only. */
const RETRY_MS = 1_000;
const POLL_PAUSE_MS = 100;

/** Polls the node for wake requests until the signal aborts. */
export async function answerWakeRequests(deps: PreviewDeps, over: AbortSignal): Promise<void> {
  const answering = new Map<string, Promise<void>>();
  while (!over.aborted) {
    const wakes = await deps.nodes.listWakes(over).catch(() => undefined);
    const fresh = (wakes ?? []).filter(({ wake_id: id }) => !answering.has(id));
    for (const wake of fresh) {
      const work = answer(deps, wake).finally(() => answering.delete(wake.wake_id));
      answering.set(wake.wake_id, work);
    }
    // The node returns requests that are still being answered again, at once. So poll more slowly.
    if (fresh.length === 0) await sleep(wakes ? POLL_PAUSE_MS : RETRY_MS, over);
  }
  await Promise.all(answering.values());
}

async function answer(deps: PreviewDeps, wake: Wake): Promise<void> {
  const outcome = await outcomeOf(deps, wake.session_id);
  deps.log.info({ session_id: wake.session_id, outcome }, "a visitor of a preview asked for its session");
  await deps.nodes
    .answerWake(wake.wake_id, outcome)
    .catch((err: unknown) => deps.log.debug({ err }, "the answer to a wake request could not be sent"));
}

async function outcomeOf(deps: PreviewDeps, sessionId: string): Promise<WakeOutcome> {
  try {
    return await wakeForVisitor(deps, sessionId);
  } catch (error) {
    if (error instanceof ApiError) return refusedBy(error);
    deps.log.warn({ err: error, session_id: sessionId }, "a session could not be woken for a visitor");
    return { result: "refused", status: 503, retry_after_s: 5 };
  }
}

async function wakeForVisitor(deps: PreviewDeps, sessionId: string): Promise<WakeOutcome> {
  const outcome = await whenFree<WakeOutcome>(
    deps,
    sessionId,
    async () => {
      const session = await findSessionById(deps.db, sessionId);
      if (!session || session.state === "destroyed" || !session.exposed) return refused(404);
      switch (session.state) {
        case "live":
          return stopsGuest(session.op) ? BUSY : { result: "live" };
        case "creating":
          return BUSY;
        case "paused":
          if (!session.wake_on_http) return refused(404);
          if (session.op === null) await wakeSession(deps, session, "operation_wake");
          return BUSY;
        default:
          return refused(410);
      }
    },
    { waitMs: LIMITS.upgradeWaitMs },
  );
  if (outcome.result !== "live") return outcome;
  deps.activity.touch(sessionId);
  // The gateway connects only to sessions that its table shows as live.
  await ensurePushed(deps);
  return outcome;
}

function refused(status: 404 | 410): WakeOutcome {
  return { result: "refused", status };
}

function refusedBy(error: ApiError): WakeOutcome {
  const row = errorRow(error.code);
  if (row.status === 404 || row.status === 410) return refused(row.status);
  return { result: "refused", status: 503, retry_after_s: error.retryAfterS ?? row.retryAfterS ?? 5 };
}
