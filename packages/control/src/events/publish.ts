/**
 * Assigns positions in the stream to committed events (docs/design/event-order.md).
 *
 * Hazard: a reader continues from the last position it saw, so no event may ever appear before that position. A number
 * drawn at the insert cannot ensure this: of two transactions, the one with the lower number may commit later, and a
 * reader in between would miss its event. So writers leave the position empty, and a publisher assigns positions to the
 * events that are committed by then. Only one publisher runs at a time: it locks the row of `event_head` until its
 * positions are committed. Later commits get later positions, whatever their number.
 *
 * - The events of one session keep the order of their commits: a writer locks the session's row before the number is
 *   drawn, until it commits, and positions follow the order of the numbers.
 * - There are two statements, so that the second one reads the events after the lock was granted.
 * - Every process may publish. One that dies in the middle has assigned no position.
 * - Writers take no lock for the order. A lock on the organisation would make all of its transactions wait for each
 *   other, and could deadlock with those that lock one session and want another. A horizon of transaction ids would let
 *   one long transaction anywhere on the server delay every event, and would order by begin, not by commit.
 */
import type { Database } from "../db/pool.ts";
import { assignPositions, lockHead } from "./store.ts";

const AT_ONCE = 1000;

export async function publishEvents(db: Database): Promise<void> {
  for (let assigned = AT_ONCE; assigned === AT_ONCE; ) {
    assigned = await db
      .transaction()
      .execute(async (tx) => await assignPositions(tx, await lockHead(tx), AT_ONCE));
  }
}
