/**
 * Leases a destroy_on_completion session for its one command, before the command starts. If the process that started
 * the command dies, the sweep destroys the session when the lease ends.
 */
import type { Queries } from "../db/pool.ts";
import { extendLease, type Lease } from "../leases/lease.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Time beyond the command's timeout, for its start and its last output. */
const COMMAND_GRACE_MS = 30_000;

/** Undefined for a session without destroy_on_completion, and for that of a run, which renews its own lease. */
export async function extendCommandLease(
  db: Queries,
  session: SessionRow,
  timeoutMs: number,
): Promise<Lease | undefined> {
  if (!session.destroy_on_completion || session.origin === "run") return undefined;
  return await extendLease(db, session.id, timeoutMs + COMMAND_GRACE_MS);
}
