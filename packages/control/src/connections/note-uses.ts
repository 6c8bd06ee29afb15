/** Takes what the gateway reports of Connections: their requests, and answers that carried the credential. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import { originOf } from "../connection-records/status.ts";
import type { Queries } from "../db/pool.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import { findSessions } from "../sessions/store.ts";
import { addUses, lockSessions, raiseVersion, type Uses } from "./store.ts";
import { addCounts } from "./uses-store.ts";

/** The gateway suspends a Connection by itself then; this makes it last. */
const MOST_REFLECTIONS = 3;

export async function noteUses(tx: Queries, entries: readonly EgressEntry[]): Promise<void> {
  const uses = sumUses(entries);
  await lockSessions(
    tx,
    uses.map(({ session_id }) => session_id),
  );
  await addCounts(tx, uses);
  const rows = await addUses(tx, uses, MOST_REFLECTIONS);
  const reflected = rows.filter(({ added }) => added > 0);
  if (reflected.length === 0) return;
  const ids = [...new Set(reflected.map(({ session_id }) => session_id))].sort();
  const sessions = await findSessions(tx).where("id", "in", ids).execute();
  for (const session of sessions) {
    const own = reflected.filter(({ session_id }) => session_id === session.id);
    const suspended = own.filter(
      ({ reflections, added }) => reflections >= MOST_REFLECTIONS && reflections - added < MOST_REFLECTIONS,
    );
    const eventsOf = (type: "connection.reflected" | "connection.suspended", of: typeof own) =>
      of.map((row) => eventOf(session, type, { name: row.name, origin: originOf(row) }));
    await appendEvents(tx, [
      ...eventsOf("connection.reflected", own),
      ...eventsOf("connection.suspended", suspended),
    ]);
    if (suspended.length > 0) await raiseVersion(tx, session.id);
  }
}

/** One row for each Connection. */
function sumUses(entries: readonly EgressEntry[]): Uses[] {
  const sums = new Map<string, Uses>();
  for (const { machine_id, connection, generation = null, reason, verdict, at, count = 1 } of entries) {
    if (connection === undefined) continue;
    const session_id = machine_id.split("-", 1)[0] ?? "";
    const key = `${session_id} ${connection}`;
    const none = { last_used_at: null, reflected: [], sent: 0, refused: 0 };
    const sum: Uses = sums.get(key) ?? { session_id, name: connection, ...none };
    sums.set(key, sum);
    if (reason === "connection_used" && (sum.last_used_at === null || at > sum.last_used_at))
      sum.last_used_at = at;
    // Such an answer has a line beside that of its request.
    if (reason === "connection_reflected") sum.reflected.push({ generation, count });
    else if (verdict === "denied") sum.refused += count;
    else sum.sent += count;
  }
  return [...sums.values()];
}
