/** Writes decided moves. A move is one statement over columns of several rooms; each room says what it makes of its own. */
import type { CreateTiming } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { deadlineColumns } from "../deadlines/columns.ts";
import { networkColumns } from "../egress/columns.ts";
import { leaseColumns } from "../leases/columns.ts";
import { operationColumns } from "../operations/columns.ts";
import type { Move, Standing } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { eventOfMove } from "./event-of-move.ts";
import { updateTimings, writeMove } from "./store.ts";

export interface MoveDetails {
  statusReason?: string;
  timings?: CreateTiming;
  /**
   * The operation that this move commits and thereby ends, or that goes over to settling the session's machines.
   * Without one the move is refused while an operation holds the session, unless it overtakes.
   */
  operation?: { id: string; thenSettle?: boolean };
  overtakes?: boolean;
  snapshot?: { id: string; bytes: number };
  /** Address of the machine that the move brings. */
  guestIp?: string;
  wakeAt?: Date | null;
  /** Checkpoint that a restore goes back to. */
  restoredFrom?: string;
  /** The machine was not started by this database: its network may be another, and of this generation. */
  foundGeneration?: number;
}

/**
 * Writes a decided move and its event, if the session still stands where the move was decided; undefined when it moved
 * meanwhile, or an operation holds it.
 */
export async function saveMove(
  db: Queries,
  id: string,
  move: Move,
  details: MoveDetails = {},
): Promise<SessionRow | undefined> {
  const { operation, wakeAt, foundGeneration } = details;
  const columns = {
    ...deadlineColumns(move, wakeAt),
    ...leaseColumns(move),
    ...networkColumns(move, foundGeneration),
    ...(operation && operationColumns(operation)),
  };
  return await writeMove(db, { id, move, details, columns, event: eventOfMove(move, details) });
}

/** Where the time of the start of its present machine went. */
export async function saveTimings(
  db: Queries,
  session: Standing & { id: string },
  timings: CreateTiming,
): Promise<void> {
  await updateTimings(db, session, timings);
}
