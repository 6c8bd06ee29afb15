/**
 * Gives events their place in the stream, once they are committed.
 *
 * A reader goes on from the last place it saw, so a place must never appear behind one that was read. A number that is
 * drawn when an event is written cannot promise that: of two transactions the one with the lower number may commit
 * later, and a reader in between would skip it for good. So writers leave the place open, and whoever publishes fills
 * it in for what is committed by then: one at a time, since each holds the row of `event_head` until its own places
 * are committed. What commits later gets a later place, whatever its number.
 *
 * - The events of one session keep the order of their commits: their writers hold the session's row from before the
 *   number is drawn until they commit, and places are given in the order of the numbers.
 * - Two statements, so that the second looks at the table after the turn came, and not before.
 * - Any process may publish, and each does; one that dies in the middle has given no place.
 * - Writers take no lock for it: a lock on the organisation would make all of its transactions wait for each other,
 *   and lock up against those that hold one session and want another. A horizon of transaction ids would let one long
 *   transaction anywhere on the server hold up every event, and would order by begin, not by commit.
 */
import type { Database } from "../db/pool.ts";
import { givePlaces, lockHead } from "./store.ts";

const AT_ONCE = 1000;

export async function publishEvents(db: Database): Promise<void> {
  for (let given = AT_ONCE; given === AT_ONCE; ) {
    given = await db.transaction().execute(async (tx) => await givePlaces(tx, await lockHead(tx), AT_ONCE));
  }
}
