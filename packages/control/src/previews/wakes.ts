/** Visitors of paused sessions: each session is woken once, however many wait for it. */
import { errorRow, LIMITS } from "@vivarium/contract/api";
import type { Wake, WakeOutcome } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { ApiError } from "../errors/api-error.ts";
import { wakeSession } from "../moves/wake.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { stopsGuest } from "../sessions/operation-kinds.ts";
import { findSessionById } from "../sessions/store.ts";
import { type ExposeDeps, ensurePushed } from "./expose.ts";

/** The node asks again, and holds its visitors for 30 s. */
const AWAY_MS = 1_000;
const PAUSE_MS = 100;

/** Asks the node for visitors until told to stop. */
export async function answerWakes(deps: ExposeDeps, over: AbortSignal): Promise<void> {
  const inHand = new Map<string, Promise<void>>();
  while (!over.aborted) {
    const wakes = await deps.nodes.listWakes(over).catch(() => undefined);
    const news = (wakes ?? []).filter(({ wake_id: id }) => !inHand.has(id));
    for (const wake of news) {
      const work = answer(deps, wake).finally(() => inHand.delete(wake.wake_id));
      inHand.set(wake.wake_id, work);
    }
    // What is in hand is told again at once.
    if (news.length === 0) await sleep(wakes ? PAUSE_MS : AWAY_MS, over);
  }
  await Promise.all(inHand.values());
}

async function answer(deps: ExposeDeps, wake: Wake): Promise<void> {
  const outcome = await outcomeOf(deps, wake.session_id);
  deps.log.info({ session_id: wake.session_id, outcome }, "a visitor of a preview asked for its session");
  await deps.nodes
    .answerWake(wake.wake_id, outcome)
    .catch((err: unknown) => deps.log.debug({ err }, "a visitor was not told what became of its wake"));
}

async function outcomeOf(deps: ExposeDeps, sessionId: string): Promise<WakeOutcome> {
  try {
    return await wakeForVisitor(deps, sessionId);
  } catch (error) {
    if (error instanceof ApiError) return refusedBy(error);
    deps.log.warn({ err: error, session_id: sessionId }, "a session could not be woken for a visitor");
    return { result: "refused", status: 503, retry_after_s: 5 };
  }
}

async function wakeForVisitor(deps: ExposeDeps, sessionId: string): Promise<WakeOutcome> {
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
  // The gateway dials what its table says.
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
