/**
 * The frame of an operation: claim, node call, commit, roll-back, report. Pause, wake, restore, checkpoint, fork and
 * template bring their own steps. Each step is idempotent, because any process may have to repeat it
 * (docs/design/operations.md).
 */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import { isStoreUnavailable } from "../db/postgres-errors.ts";
import { ApiError } from "../errors/api-error.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { isRefusal, NodeError } from "../fleet/node-error.ts";
import type { Meter } from "../metrics/meter.ts";
import type { OperationKind } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { Operation, Operations } from "./operations.ts";
import { endedDuringRequest, ownershipOf } from "./ownership.ts";
import { untilAnswered } from "./until-answered.ts";
import { BUSY } from "./when-free.ts";

export interface FrameDeps extends AuditDeps {
  db: Database;
  operations: Operations;
  signals: SessionSignals;
  meter: Meter;
  log: Log;
}

type Framed = Exclude<OperationKind, "settle">;

/** By kind: the crash points after claim and commit, and the log message of a success. */
const REPORTS: Record<Framed, { intent: string; commit: string; done: string }> = {
  pause: { intent: "pause.intent", commit: "pause.commit", done: "session paused" },
  wake: { intent: "wake.intent", commit: "wake.commit", done: "session awake" },
  restore: { intent: "restore.intent", commit: "restore.swap", done: "session restored" },
  checkpoint: { intent: "checkpoint.intent", commit: "checkpoint.commit", done: "checkpoint made" },
  fork: { intent: "fork.intent", commit: "fork.commit", done: "session forked" },
  save_template: { intent: "save_template.intent", commit: "save_template.commit", done: "template saved" },
};

/** The steps that differ by kind. `made` is the node's answer, `row` the result of the commit. */
export interface Steps<Made, Row, Outcome> {
  /** The node call. Repeated while the node is away. */
  make(signal: AbortSignal): Promise<Made>;
  /** Writes the outcome, if the row still has this operation. Undefined if it does not. */
  commit(made: Made, elapsedMs: () => number): Promise<Row | undefined>;
  /** Runs after the commit. The timings (milliseconds by stage) go to metrics and log, the facts to the log. */
  finish(row: Row, made: Made, elapsedMs: () => number): Promise<Finished<Outcome>> | Finished<Outcome>;
  /** Removes from the node anything that `make` may have made. */
  remove(): Promise<unknown>;
  /** Undoes the operation. The default removes what was made and clears the operation. */
  rollBack?(): Promise<void>;
  /** How soon after a failure the deadlines are checked again; default: at once. */
  lookAfterMs?: number;
  /** The error for the caller, if it differs from the usual one for this error of the node. */
  explain?(error: NodeError): ApiError | undefined;
  /**
   * After a failure that leaves the node's state unknown: `leave` keeps the operation in the row, for the process that
   * takes it over; `roll back` ends it at once, which is safe if the operation never changes the session itself.
   */
  whenUnsure: "leave" | "roll back";
}

type Ending = Pick<Steps<never, never, never>, "remove" | "rollBack" | "lookAfterMs" | "whenUnsure">;

export interface Finished<Outcome> {
  outcome: Outcome;
  timings: Record<string, number>;
  facts?: Record<string, unknown>;
}

/** Runs `work` after the claim. BUSY if the claim failed: the session moved, or has an operation in flight. */
export async function operate<T>(
  { operations }: Pick<FrameDeps, "operations">,
  claim: Promise<SessionRow | undefined>,
  work: (op: Operation) => Promise<T>,
): Promise<T | typeof BUSY> {
  const claimed = await claim;
  if (!claimed) return BUSY;
  crashPoint(REPORTS[claimed.op as Framed].intent);
  return await operations.run(claimed, work);
}

/** Runs all steps. BUSY if another process has taken the operation over: the row has the outcome. */
export async function carryOut<Made, Row, Outcome>(
  deps: FrameDeps,
  op: Operation,
  steps: Steps<Made, Row, Outcome>,
): Promise<Outcome | typeof BUSY> {
  const startedAt = performance.now();
  const elapsedMs = () => Math.round(performance.now() - startedAt);
  const committed = await makeAndCommit(deps, op, steps, elapsedMs);
  if (committed === BUSY) return BUSY;
  const kind = op.kind as Framed;
  crashPoint(REPORTS[kind].commit);
  const { outcome, timings, facts } = await steps.finish(committed.row, committed.made, elapsedMs);
  deps.signals.moved(op.session.id);
  deps.meter.recordDuration(kind === "save_template" ? "template" : kind, timings);
  deps.log.info({ session_id: op.session.id, ...facts, timings }, REPORTS[kind].done);
  return outcome;
}

async function makeAndCommit<Made, Row, Outcome>(
  deps: FrameDeps,
  op: Operation,
  steps: Steps<Made, Row, Outcome>,
  elapsedMs: () => number,
): Promise<{ made: Made; row: Row } | typeof BUSY> {
  let made: Made;
  let row: Row | undefined;
  try {
    made = await untilAnswered(op.signal, (signal) => steps.make(signal));
    row = await steps.commit(made, elapsedMs);
  } catch (error) {
    // The commit may have succeeded. The process that takes the operation over reads the row.
    if (isStoreUnavailable(error)) throw error;
    if (op.signal.aborted) return await calledOff(deps, op, steps, error);
    await endAfter(deps, op, steps, error);
    if (!(error instanceof NodeError)) throw error;
    throw steps.explain?.(error) ?? apiErrorOfOperation(error);
  }
  return row === undefined ? await calledOff(deps, op, steps) : { made, row };
}

/** After a failure before the commit: ends the operation if that is safe, else leaves it to a take-over. */
async function endAfter(deps: FrameDeps, op: Operation, steps: Ending, error: unknown): Promise<void> {
  if (isRefusal(error) || steps.whenUnsure === "roll back") return await rollBack(deps, op, steps);
  const hasNotReachedNode = error instanceof NodeError && error.failure === "unreachable";
  if (hasNotReachedNode && !op.isTakenOver)
    await deps.operations.clear(op, { lookAfterMs: steps.lookAfterMs });
}

/** Ends the work on an operation that was cancelled, or that is not in the row any more. */
async function calledOff(
  deps: FrameDeps,
  op: Operation,
  steps: Ending,
  cause?: unknown,
): Promise<typeof BUSY> {
  if (steps.whenUnsure === "roll back") await rollBack(deps, op, steps);
  const owner = await ownershipOf(deps.db, op);
  if (owner === "ended") {
    // Race: the destroy removes everything on the node, but `make` may have finished after that.
    await steps.remove().catch(() => undefined);
    throw endedDuringRequest();
  }
  if (steps.whenUnsure === "roll back") {
    const text = "the operation was broken off and has changed nothing; try again";
    throw new ApiError("session_not_live", text, { cause });
  }
  if (owner === "another") return BUSY;
  throw cause instanceof NodeError
    ? apiErrorOfOperation(cause)
    : (cause ?? new Error(`a ${op.kind} lost its row`));
}

async function rollBack(deps: FrameDeps, op: Operation, steps: Ending): Promise<void> {
  if (steps.rollBack) return await steps.rollBack();
  await steps.remove();
  await deps.operations.clear(op, { lookAfterMs: steps.lookAfterMs });
}
