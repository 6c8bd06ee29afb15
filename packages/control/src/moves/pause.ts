/** Answers a pause request: waits until no operation holds the session, decides, and pauses it. */
import { LIMITS } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { readDeadlineTime } from "../db/time.ts";
import { saveWakeAt } from "../deadlines/wake-at.ts";
import { invalidField } from "../http/validation.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { claimAndPause, type Paused } from "./pause-machine.ts";

/** Pauses a session. If it is paused already, only sets or clears its scheduled wake. */
export async function pauseSession(
  deps: MoveDeps,
  scope: Scope,
  { id, wakeAt: asked, by }: { id: string; wakeAt?: string | null; by: Caller },
): Promise<Partial<Paused> & Pick<Paused, "session">> {
  const wakeAt = asked == null ? null : new Date(asked);
  if (wakeAt) await checkWakeAt(deps, wakeAt);
  // Only requests with the same scope and the same body share an outcome.
  const key = ["pause", id, scope.orgId, scope.projectId, wakeAt?.toISOString()].join(" ");
  return await deps.operations.singleFlight(key, () =>
    whenFree(deps, id, () => decideAndPause(deps, scope, { id, wakeAt, by })),
  );
}

async function decideAndPause(
  deps: MoveDeps,
  scope: Scope,
  { id, wakeAt, by }: { id: string; wakeAt: Date | null; by: Caller },
) {
  const session = await getSession(deps.db, scope, id);
  if (session.state === "paused") {
    const saved = session.op === null ? await setWakeAt(deps, session, { wakeAt, by }) : undefined;
    return saved ? { session: saved } : BUSY;
  }
  if (session.state !== "live") throw notUsable(session);
  if (session.op !== null) return BUSY;
  const why = { event: "pause" as const, by, ...(wakeAt && { wake_at: wakeAt.toISOString() }) };
  return await claimAndPause(deps, session, why);
}

async function setWakeAt(
  deps: MoveDeps,
  { id }: SessionRow,
  { wakeAt, by }: { wakeAt: Date | null; by: Caller },
): Promise<SessionRow | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    const saved = await saveWakeAt(tx, id, { wakeAt });
    const meta = { wake_at: wakeAt?.toISOString() ?? null };
    if (saved) await appendEntry(deps, tx, { by, action: "session.pause", target: id, sessionId: id, meta });
    return saved;
  });
}

async function checkWakeAt({ db }: MoveDeps, wakeAt: Date): Promise<void> {
  const inMs = wakeAt.getTime() - (await readDeadlineTime(db)).getTime();
  if (inMs <= 0) throw invalidField("wake_at", "must be in the future", wakeAt.toISOString());
  if (inMs > LIMITS.wakeAtMaxMs) {
    throw invalidField("wake_at", "must be at most 90 days in the future", wakeAt.toISOString());
  }
}
