/**
 * Pauses of a service that requires them to be durable (`VIV_REQUIRE_DURABLE_PAUSE`): the machine is held until the archive of its
 * state is complete. If it does not become so, the machine continues, the session says why, and the pause is tried again.
 */
import { LIMITS, type SessionEvent } from "@vivarium/contract/api";
import type { SnapshotStatus } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { addArchive } from "../archive-records/add.ts";
import { findArchiveOf } from "../archive-records/store.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";
import type { Operation } from "../operations/operations.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";
import { savePauseDetail } from "./store.ts";

const LOOK_MS = 250;
export const NO_COLD_TIER = "the service has no object store to keep saved states in";

export const canArchive = ({ hasArchives, keyring }: Pick<MoveDeps, "hasArchives" | "keyring">): boolean =>
  hasArchives && keyring.current !== undefined;

/** Waits for the archive of the snapshot, which a job uploads. Returns why there is none after all; undefined: it is complete. */
export async function untilArchived(
  deps: MoveDeps,
  op: Operation,
  snapshot: SnapshotStatus,
  signal: AbortSignal,
): Promise<string | undefined> {
  const saved = { kind: "pause", session: op.session, snapshot } as const;
  const added = await untilStored(() =>
    deps.db
      .transaction()
      .execute(async (tx) =>
        (await deps.operations.isOurs(op, tx)) ? await addArchive(deps, tx, saved) : undefined,
      ),
  );
  if (!added) return NO_COLD_TIER;
  const until = performance.now() + LIMITS.durablePauseMs;
  while (performance.now() < until) {
    signal.throwIfAborted();
    const archive = await untilStored(() => findArchiveOf(deps.db, snapshot.snapshot_id));
    if (archive?.state === "complete") return undefined;
    if (archive?.state !== "pending") return archive?.error ?? "its archive was deleted";
    await sleep(LOOK_MS, signal);
  }
  return `its archive was not complete within ${LIMITS.durablePauseMs / 60_000} minutes`;
}

/** Ends the operation as after a refusal by the node. */
export function notDurable(reason: string): NodeError {
  return new NodeError("refused", `the saved state is not durable: ${reason}`, {
    code: "archive_interrupted",
  });
}

export function explainNotDurable(reason: string, cause?: unknown): ApiError {
  const text = `this server pauses durably only, and the session goes on running: ${oneLine(reason, 300)}`;
  return new ApiError("archive_unavailable", text, { cause });
}

/** Writes why the session stays live, with an event for the first of equal refusals. */
export async function refusePause(
  { db, signals }: Pick<MoveDeps, "db" | "signals">,
  session: SessionRow,
  op: SessionEvent,
  reason: string,
): Promise<void> {
  const detail = `not paused: ${oneLine(reason, 300)}`;
  await db.transaction().execute(async (tx) => {
    if (!(await savePauseDetail(tx, session.id, detail))) return;
    const data = { code: "archive_unavailable", reason: detail, op };
    await appendEvent(tx, eventOf(session, "session.pause_refused", data));
  });
  signals.moved(session.id);
}
