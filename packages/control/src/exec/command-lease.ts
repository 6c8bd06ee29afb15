/**
 * The one command of a destroy_on_completion session is in its row before it is started, as the instant from which the
 * sweep ends the session: the process that started it may not live to see its end.
 */
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { extendLease, type Lease, revertLease } from "../leases/lease.ts";
import type { SessionRow } from "../sessions/store.ts";

/** For the start of the command, and for its last output, beyond the time that it may run. */
const COMMAND_GRACE_MS = 30_000;
const STARTED_NOTHING: ReadonlySet<string | undefined> = new Set(["refused", "unreachable", "garbled"]);

/** Undefined when the session needs none: a run keeps a lease of its own. */
export async function leaseCommand(
  db: Queries,
  session: SessionRow,
  timeoutMs: number,
): Promise<Lease | undefined> {
  if (!session.destroy_on_completion || session.origin === "run") return undefined;
  return await extendLease(db, session.id, timeoutMs + COMMAND_GRACE_MS);
}

/** The session had no command after all, or has it still. */
export async function takeBackLease(
  db: Queries,
  session: SessionRow,
  lease: Lease | undefined,
): Promise<void> {
  if (lease) await revertLease(db, session.id, lease).catch(() => undefined);
}

/** Whether it is certain that no command was started. */
export function hasStartedNothing(error: unknown): boolean {
  const cause = error instanceof ApiError ? error.cause : error;
  return cause instanceof NodeError ? STARTED_NOTHING.has(cause.failure) : error instanceof ApiError;
}
