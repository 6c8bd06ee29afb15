/**
 * Steps shared by checkpoint, fork and template: they take a snapshot of a session, which is then kept or deleted. The
 * session itself does not change, whatever the outcome.
 */

import type { SnapshotSpec, SnapshotStatus } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { addArchive } from "../archive-records/add.ts";
import { canFetch, withSnapshot } from "../archive-records/fetch.ts";
import { isWarm } from "../archive-records/shown.ts";
import { appendEntry } from "../audit/append.ts";
import type { NewEntry } from "../audit/entry.ts";
import type { Queries } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { expireIfLifetimeOver } from "../moves/expire.ts";
import { carryOut, operate } from "../operations/frame.ts";
import { type Operation, snapshotIdOf } from "../operations/operations.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { openStateKey } from "../secrets/state-key.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isActive, machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";

/**
 * Throws unless the session's state can be saved or replaced: it is live, or paused with its lifetime not over. BUSY if
 * an operation is in flight, or the session moved.
 */
export async function requireSnapshotable(
  deps: MoveDeps,
  session: SessionRow,
): Promise<SessionRow | typeof BUSY> {
  if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
  if (session.op !== null) return BUSY;
  if (session.state === "paused" && (await expireIfLifetimeOver(deps, session))) return BUSY;
  return session;
}

/** How a snapshot is kept: `keep` inserts the row that owns it afterwards. */
interface Keeping<Row> {
  kind: "checkpoint" | "save_template";
  /** The kind of its archive. */
  archive: "checkpoint" | "template";
  /** Prefix of the snapshot's id. */
  prefix: string;
  /** Refuses what could not be kept, before the snapshot is taken. */
  check?(session: SessionRow): Promise<void>;
  /** Locks what `keep` counts. */
  lock?(tx: Queries, session: SessionRow): Promise<unknown>;
  find(tx: Queries, snapshotId: string): Promise<Row | undefined>;
  keep(tx: Queries, session: SessionRow, snapshot: SnapshotStatus): Promise<Row>;
  by: Caller;
  /** The audit entry of a row that is kept. */
  entryOf(row: Row): Pick<NewEntry, "action" | "target" | "meta">;
  factsOf(row: Row): Record<string, unknown>;
}

export interface Kept<Row> {
  row: Row;
  timings: Record<string, number>;
}

/** Takes a snapshot of the session, once no other operation is in flight, and keeps it. */
export async function keepSnapshot<Row>(
  deps: MoveDeps,
  scope: Scope,
  sessionId: string,
  keeping: Keeping<Row>,
): Promise<Kept<Row>> {
  return await whenFree(deps, sessionId, async () => {
    const session = await requireSnapshotable(deps, await getSession(deps.db, scope, sessionId));
    if (session === BUSY) return BUSY;
    await keeping.check?.(session);
    const input = { snapshot_id: `${keeping.prefix}${randomId()}`, by: keeping.by };
    return await operate(deps, deps.operations.claim(session, keeping.kind, input), (op) =>
      carryOut(deps, op, {
        ...snapshotSteps(deps, op),
        commit: (snapshot) => untilStored(() => commit(deps, op, keeping, snapshot)),
        finish: (row, snapshot, elapsedMs) => {
          const timings = { ...snapshot.timings, total: elapsedMs() };
          return { outcome: { row, timings }, timings, facts: keeping.factsOf(row) };
        },
      }),
    );
  });
}

/** Inserts the row and ends the operation in one transaction: the snapshot always has exactly one owner. */
async function commit<Row>(
  deps: MoveDeps,
  op: Operation,
  { lock, find, keep, by, entryOf, archive }: Keeping<Row>,
  snapshot: SnapshotStatus,
): Promise<Row | undefined> {
  return await deps.db.transaction().execute(async (tx) => {
    await lock?.(tx, op.session);
    const known = await find(tx, snapshot.snapshot_id);
    // An earlier commit succeeded, and only its confirmation was lost.
    if (known) return known;
    if (!(await deps.operations.clear(op, { db: tx }))) return undefined;
    const row = await keep(tx, op.session, snapshot);
    await addArchive(deps, tx, { kind: archive, session: op.session, snapshot });
    await appendEntry(deps, tx, { by, sessionId: op.session.id, ...entryOf(row) });
    return row;
  });
}

/** The steps that take the snapshot and roll back. The caller adds `commit` and `finish`. */
export function snapshotSteps(deps: MoveDeps, op: Operation) {
  return {
    make: async (signal: AbortSignal) => {
      const stateKey = await openStateKey(deps.keyring, op.session);
      const source = sourceOf(op.session);
      const spec = { ...source, ...(isOfDisk(op) && { memory: false as const }) };
      const put = () => deps.nodes.putSnapshot(snapshotIdOf(op), spec, signal, stateKey);
      const from = "snapshot_id" in source ? source.snapshot_id : undefined;
      const isFetched = op.kind !== "checkpoint" || (await isWarm(deps.db, from));
      const made = await withSnapshot(deps, isFetched ? from : undefined, signal, put).catch(
        (error: unknown) => explainCold(deps, op, error),
      );
      // A node of an earlier version saves memory all the same, which may contain secrets.
      if (isOfDisk(op) && made.memory !== false)
        throw new NodeError("refused", "the node cannot save a disk without memory", {
          code: "capture_failed",
        });
      return made;
    },
    remove: async () => undefined,
    rollBack: () => discardSnapshot(deps, op),
    whenUnsure: "roll back" as const,
  };
}

/** A checkpoint of a paused session shares the files of its saved state, which must be on this host. */
async function explainCold(deps: MoveDeps, { kind, session }: Operation, error: unknown): Promise<never> {
  const isLost = error instanceof NodeError && error.code === "snapshot_not_found";
  if (kind !== "checkpoint" || !isLost || !(await canFetch(deps, session.snapshot_id ?? ""))) throw error;
  throw new ApiError(
    "session_not_live",
    "the session's saved state is only in the object store (cold); resume the session first",
    { cause: error },
  );
}

/** Deletes the snapshot of an operation that is not committed, and ends the operation. Idempotent, in any process. */
export async function discardSnapshot(deps: MoveDeps, op: Operation): Promise<void> {
  await deps.nodes
    .deleteSnapshot(snapshotIdOf(op))
    .catch((err: unknown) =>
      deps.log.warn({ err }, "a snapshot could not be deleted yet; the sweep does it"),
    );
  await deps.operations.clear(op);
}

/** Whether the snapshot is the disk alone: a template of a session whose memory may contain secrets. */
const isOfDisk = ({ kind, session }: Operation): boolean =>
  kind === "save_template" && session.may_hold_secrets;

/** The source of the snapshot. A paused session is not woken: the snapshot shares the files of its saved state. */
function sourceOf(session: SessionRow): SnapshotSpec {
  if (isActive(session.state)) return { machine_id: machineIdOf(session), after: "continue" };
  if (session.snapshot_id === null) throw new Error("a paused session has no saved state");
  return { snapshot_id: session.snapshot_id };
}
