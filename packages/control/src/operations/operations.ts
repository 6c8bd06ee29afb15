/** Claims and runs the operations of this process, renews their claims, and shares outcomes of identical requests. */
import { repeatAfter } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { NextNetwork, OperationInput, OperationKind } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { Standing } from "../sessions/state.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import { endedDuringRequest } from "./ownership.ts";
import {
  claimLapsedOperations,
  claimOperation,
  clearOperation,
  OPERATION_LEASE_MS,
  releaseOperation,
  renewOperation,
} from "./store.ts";

const RENEW_MS = OPERATION_LEASE_MS / 3;

interface OperationDeps {
  db: Database;
  signals: SessionSignals;
  log: Log;
}

/** An operation that this process has claimed. */
export interface Operation {
  /** Fencing token: a commit succeeds only while the row still has this id. */
  readonly id: string;
  readonly kind: OperationKind;
  readonly input: OperationInput;
  /** The session as it was when the operation was claimed. */
  readonly session: SessionRow;
  /** Started by another process that died: the step that it had reached is unknown. */
  readonly isTakenOver: boolean;
  /** Aborted when the session has ended, the claim is lost, or this process shuts down. */
  readonly signal: AbortSignal;
}

export class Operations {
  readonly #deps: OperationDeps;
  readonly #running = new Map<string, { cancel: AbortController; done: Promise<unknown> }>();
  readonly #inFlight = new Map<string, Promise<unknown>>();
  readonly #background = new Set<Promise<unknown>>();
  readonly #claims = new Set<Promise<unknown>>();

  constructor(deps: OperationDeps) {
    this.#deps = deps;
  }

  /** Writes the intent into the row. Undefined if the session moved, or another operation is in flight. */
  async claim(
    session: Standing & { id: string },
    kind: OperationKind,
    input: OperationInput = {},
    db: Queries = this.#deps.db,
    network?: NextNetwork,
  ): Promise<SessionRow | undefined> {
    return await claimOperation(db, session, { kind, input, network });
  }

  /**
   * Runs the work of a claimed operation and renews the claim meanwhile. The work must end the operation in the row, by
   * the move that commits it or by `clear`. If it throws before that, another process takes the operation over.
   */
  async run<T>(
    claimed: SessionRow,
    work: (op: Operation) => Promise<T>,
    { isTakenOver = false } = {},
  ): Promise<T> {
    const cancel = new AbortController();
    const op = operationOf(claimed, cancel.signal, isTakenOver);
    const done = this.#work(op, cancel, work);
    const mine = { cancel, done };
    this.#running.set(claimed.id, mine);
    try {
      return await done;
    } finally {
      // Race: after the work has ended the operation, the next one of the session may start before this line.
      if (this.#running.get(claimed.id) === mine) this.#running.delete(claimed.id);
      this.#deps.signals.moved(claimed.id);
    }
  }

  /** Whether the row still has this operation. Locks the row, so in a transaction the answer holds until its end. */
  async isOurs(op: Operation, db: Queries): Promise<boolean> {
    return await renewOperation(db, op);
  }

  /** Ends an operation without changing the session. False if the row does not have this operation any more. */
  async clear(
    op: Operation,
    { db = this.#deps.db, lookAfterMs = 0 }: { db?: Queries; lookAfterMs?: number } = {},
  ): Promise<boolean> {
    const isCleared = await clearOperation(db, op, lookAfterMs);
    // Wakes waiters at once, even if background work ends the operation after its answer was sent.
    if (isCleared) this.#deps.signals.moved(op.session.id);
    return isCleared;
  }

  /** Requests with the same key that are in flight at the same time share one outcome. */
  async singleFlight<T>(key: string, request: () => Promise<T>): Promise<T> {
    const known = this.#inFlight.get(key) as Promise<T> | undefined;
    if (known !== undefined) return await known;
    const outcome = request().finally(() => this.#inFlight.delete(key));
    this.#inFlight.set(key, outcome);
    return await outcome;
  }

  /** Runs work that no caller waits for, except `stop`. */
  runInBackground(work: Promise<unknown>): void {
    const logged = work.catch((err: unknown) => this.#deps.log.warn({ err }, "background work failed"));
    this.#background.add(logged);
    void logged.finally(() => this.#background.delete(logged));
  }

  get backgroundCount(): number {
    return this.#background.size;
  }

  /** Aborts the operation of a session that has ended. */
  cancel(sessionId: string): void {
    this.#running.get(sessionId)?.cancel.abort();
  }

  /** Claims operations whose process died, so that this process completes or reverts them. */
  async claimLapsed(lapsedBefore: Date): Promise<SessionRow[]> {
    const except = [...this.#running.keys()];
    return await claimLapsedOperations(this.#deps.db, { except, lapsedBefore });
  }

  /** For shutdown: aborts all work. Another process takes the operations over. */
  async stop(): Promise<void> {
    const all = [...this.#running.values()];
    for (const { cancel } of all) cancel.abort();
    await Promise.allSettled(all.map(({ done }) => done));
    await Promise.allSettled([...this.#background, ...this.#claims]);
  }

  async #work<T>(op: Operation, cancel: AbortController, work: (op: Operation) => Promise<T>): Promise<T> {
    const over = new AbortController();
    // Not awaited below: a renewal that hangs must not delay the answer.
    const kept = repeatAfter(RENEW_MS, over.signal, async () => {
      const isOurs = await renewOperation(this.#deps.db, op).catch(() => true);
      if (!isOurs) cancel.abort();
    }).finally(() => this.#claims.delete(kept));
    this.#claims.add(kept);
    try {
      return await work(op);
    } catch (error) {
      await releaseOperation(this.#deps.db, op).catch(() => undefined);
      throw (await this.#hasSessionEnded(op)) ? endedDuringRequest() : error;
    } finally {
      over.abort();
    }
  }

  /** After a destroy, any error of the node is only a consequence of it. */
  async #hasSessionEnded(op: Operation): Promise<boolean> {
    const now = await findSessionById(this.#deps.db, op.session.id).catch(() => op.session);
    return now === undefined || now.state === "destroyed";
  }
}

/** The id of the snapshot that the operation makes. */
export function snapshotIdOf({ kind, input }: Operation): string {
  if (input.snapshot_id === undefined) throw new Error(`the ${kind} in the row names no snapshot`);
  return input.snapshot_id;
}

function operationOf(row: SessionRow, signal: AbortSignal, isTakenOver: boolean): Operation {
  if (row.op === null || row.op_id === null) throw new Error("the session's row holds no operation");
  return { id: row.op_id, kind: row.op, input: row.op_input ?? {}, session: row, isTakenOver, signal };
}
