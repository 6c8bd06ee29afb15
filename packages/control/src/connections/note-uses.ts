/** Takes what the gateway reports of Connections: their requests, and answers that carried the credential. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import { originOf } from "../connection-records/status.ts";
import type { Queries } from "../db/pool.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import { findSessions } from "../sessions/store.ts";
import { addUses, lockSessions, raiseVersion, type Uses } from "./store.ts";
import { addCounts, type MinuteCounts } from "./uses-store.ts";

/** The gateway suspends a Connection by itself then; this makes it last. */
const MOST_REFLECTIONS = 3;

export async function noteUses(tx: Queries, entries: readonly EgressEntry[]): Promise<void> {
  const uses = sumUses(entries);
  await lockSessions(
    tx,
    uses.map(({ session_id }) => session_id),
  );
  await addCounts(tx, countByMinute(entries));
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

const sessionOf = ({ machine_id }: EgressEntry) => machine_id.split("-", 1)[0] ?? "";

/** One row for each Connection. */
function sumUses(entries: readonly EgressEntry[]): Uses[] {
  const sums = new Map<string, Uses>();
  for (const entry of entries) {
    const { connection, generation = null, reason, at, count = 1 } = entry;
    if (connection === undefined) continue;
    const session_id = sessionOf(entry);
    const key = `${session_id} ${connection}`;
    const sum: Uses = sums.get(key) ?? { session_id, name: connection, last_used_at: null, reflected: [] };
    sums.set(key, sum);
    if (reason === "connection_used" && (sum.last_used_at === null || at > sum.last_used_at))
      sum.last_used_at = at;
    if (reason === "connection_reflected") sum.reflected.push({ generation, count });
  }
  return [...sums.values()];
}

/** One row for each Connection and minute of requests, by the node's clock. */
function countByMinute(entries: readonly EgressEntry[]): MinuteCounts[] {
  const sums = new Map<string, MinuteCounts>();
  for (const entry of entries) {
    const { connection, count = 1 } = entry;
    const counted = countedAs(entry);
    if (connection === undefined || counted === undefined) continue;
    const session_id = sessionOf(entry);
    const minute = minuteOf(entry.at);
    const key = `${session_id} ${connection} ${minute}`;
    const none = { session_id, name: connection, minute, sent: 0, reflected: 0, refused: 0 };
    const sum = sums.get(key) ?? none;
    sums.set(key, sum);
    sum[counted] += count;
  }
  return [...sums.values()];
}

/** Undefined for a request that failed before its credential left. A gateway that does not say so may have sent it. */
function countedAs({ reason, verdict, is_sent }: EgressEntry): "sent" | "reflected" | "refused" | undefined {
  // Such an answer has a line beside that of its request.
  if (reason === "connection_reflected") return "reflected";
  if (verdict === "denied") return "refused";
  return is_sent === false ? undefined : "sent";
}

function minuteOf(at: string): string {
  const time = Date.parse(at);
  const minute = Number.isNaN(time) ? new Date() : new Date(time);
  minute.setUTCSeconds(0, 0);
  return minute.toISOString();
}
