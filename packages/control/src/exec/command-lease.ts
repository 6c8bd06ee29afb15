/**
 * A destroy_on_completion session gets one command. The process that starts the command may die before its end. So the
 * row gets a lease before the command starts, and the sweep destroys the session when the lease ends.
 */
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { extendLease, type Lease } from "../leases/lease.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Time beyond the command's timeout, for its start and its last output. */
const COMMAND_GRACE_MS = 30_000;
const STARTED_NOTHING: ReadonlySet<string | undefined> = new Set(["refused", "unreachable", "garbled"]);

/** Undefined when the session needs no lease here. A run keeps a lease of its own. */
export async function extendCommandLease(
  db: Queries,
  session: SessionRow,
  timeoutMs: number,
): Promise<Lease | undefined> {
  if (!session.destroy_on_completion || session.origin === "run") return undefined;
  return await extendLease(db, session.id, timeoutMs + COMMAND_GRACE_MS);
}

/** Whether it is certain that no command was started. */
export function hasStartedNothing(error: unknown): boolean {
  const cause = error instanceof ApiError ? error.cause : error;
  return cause instanceof NodeError ? STARTED_NOTHING.has(cause.failure) : error instanceof ApiError;
}
