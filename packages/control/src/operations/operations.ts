/** The operations that run in this process: keeps their claims, lets identical requests share one outcome. */
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import type { Database, Queries } from "../db/pool.ts";
import type { NextNetwork, OperationInput, OperationKind } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import { endedMeanwhile } from "./aftermath.ts";
import {
  claimLapsedOperations,
  claimOperation,
  clearOperation,
  releaseOperation,
  renewOperation,
} from "./store.ts";

/** How long a claim lasts without renewal. */
const LEASE_MS = 5_000;
const RENEW_MS = LEASE_MS / 3;

interface OperationDeps {
  db: Database;
  signals: SessionSignals;
  log: Log;
}

/** An operation that this process holds. */
export interface Operation {
  /** Its name in the row: whoever commits it must still find it there. */
  readonly id: string;
  readonly kind: OperationKind;
  readonly input: OperationInput;
  /** The session as it was when the operation was claimed. */
  readonly session: SessionRow;
  /** Another process began it: how far it got is unknown. */
  readonly isTakenOver: boolean;
  /** Fires when the operation is not wanted, or not ours, any more. */
  readonly signal: AbortSignal;
}

export class Operations {
  readonly #deps: OperationDeps;
  readonly #running = new Map<string, { cancel: AbortController; done: Promise<unknown> }>();
  readonly #shared = new Map<string, Promise<unknown>>();
  readonly #behind = new Set<Promise<unknown>>();
  readonly #claims = new Set<Promise<unknown>>();

  constructor(deps: OperationDeps) {
    this.#deps = deps;
  }

  /** Writes the intent; undefined when the session moved, or something else holds it. Then decide again. */
  async claim(
    session: Standing & { id: string },
    kind: OperationKind,
    input: OperationInput = {},
    db: Queries = this.#deps.db,
    besides?: NextNetwork,
  ): Promise<SessionRow | undefined> {
    return await claimOperation(db, session, { id: randomId(), kind, input, leaseMs: LEASE_MS, besides });
  }

  /**
   * Works on a claimed operation and keeps the claim meanwhile. The work ends the operation in the row: with the move
   * that commits it, or with `clear`. Work that throws before it did leaves the operation to the next who looks.
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
      // Work that fails once it has ended its operation looks at the row again, and the next one may run by then.
      if (this.#running.get(claimed.id) === mine) this.#running.delete(claimed.id);
      this.#deps.signals.moved(claimed.id);
    }
  }

  /** Whether the operation is still in the row under our name; in a transaction it stays so until its end. */
  async isOurs(op: Operation, db: Queries): Promise<boolean> {
    return await renewOperation(db, op.session.id, op.id, LEASE_MS);
  }

  /** Ends an operation that leaves its session as it was; false when it is not ours any more. */
  async clear(op: Operation, db: Queries = this.#deps.db, { lookAfterMs = 0 } = {}): Promise<boolean> {
    const isCleared = await clearOperation(db, op.session.id, op.id, lookAfterMs);
    // Whoever waits for the session looks at once, also when the work behind an answer ends last.
    if (isCleared) this.#deps.signals.moved(op.session.id);
    return isCleared;
  }

  /** Requests with the same key share what the first of them comes to. */
  async share<T>(key: string, request: () => Promise<T>): Promise<T> {
    const known = this.#shared.get(key) as Promise<T> | undefined;
    if (known !== undefined) return await known;
    const outcome = request().finally(() => this.#shared.delete(key));
    this.#shared.set(key, outcome);
    return await outcome;
  }

  /** Work that no caller waits for; `stop` does. */
  behind(work: Promise<unknown>): void {
    const logged = work.catch((err: unknown) =>
      this.#deps.log.warn({ err }, "work behind an operation failed"),
    );
    this.#behind.add(logged);
    void logged.finally(() => this.#behind.delete(logged));
  }

  get behindCount(): number {
    return this.#behind.size;
  }

  /** The session is gone: its operation need not go on. */
  cancel(sessionId: string): void {
    this.#running.get(sessionId)?.cancel.abort();
  }

  /** Takes over operations whose process died. */
  async claimLapsed(lapsedBefore: Date): Promise<SessionRow[]> {
    const except = [...this.#running.keys()];
    return await claimLapsedOperations(this.#deps.db, { except, leaseMs: LEASE_MS, lapsedBefore });
  }

  /** For shutdown: gives up all work and leaves the rows to the next process. */
  async stop(): Promise<void> {
    const all = [...this.#running.values()];
    for (const { cancel } of all) cancel.abort();
    await Promise.allSettled(all.map(({ done }) => done));
    await Promise.allSettled([...this.#behind, ...this.#claims]);
  }

  async #work<T>(op: Operation, cancel: AbortController, work: (op: Operation) => Promise<T>): Promise<T> {
    const over = new AbortController();
    // Nobody waits for the last renewal: an outcome that is committed is told at once.
    const kept = this.#keepClaim(op, cancel, over.signal).finally(() => this.#claims.delete(kept));
    this.#claims.add(kept);
    try {
      return await work(op);
    } catch (error) {
      await releaseOperation(this.#deps.db, op.session.id, op.id).catch(() => undefined);
      throw (await this.#wasOvertaken(op)) ? endedMeanwhile() : error;
    } finally {
      over.abort();
    }
  }

  /** A destroy that came first explains whatever the node said to the operation. */
  async #wasOvertaken(op: Operation): Promise<boolean> {
    const now = await findSessionById(this.#deps.db, op.session.id).catch(() => op.session);
    return now === undefined || now.state === "destroyed";
  }

  async #keepClaim(op: Operation, cancel: AbortController, over: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(RENEW_MS, over);
      if (over.aborted) return;
      const isOurs = await renewOperation(this.#deps.db, op.session.id, op.id, LEASE_MS).catch(() => true);
      if (!isOurs) cancel.abort();
    }
  }
}

function operationOf(row: SessionRow, signal: AbortSignal, isTakenOver: boolean): Operation {
  if (row.op === null || row.op_id === null) throw new Error("the session's row holds no operation");
  return { id: row.op_id, kind: row.op, input: row.op_input ?? {}, session: row, isTakenOver, signal };
}
