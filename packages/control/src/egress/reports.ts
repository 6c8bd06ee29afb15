/** Reads the node's reports of its machines' traffic, and saves bytes per day, log lines and the use of previews. */
import type { EgressEntry } from "@vivarium/contract/gateway";
import type { MachineCounters, NetworkReport } from "@vivarium/contract/node";
import { Coalesced } from "@vivarium/kit/coalesced";
import type { Database, Queries } from "../db/pool.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import { addDenials } from "./denials-store.ts";
import type { EgressDeps } from "./deps.ts";
import { insertLines, moveCursor, readCursor } from "./log-store.ts";
import { limitOf } from "./prepare.ts";
import { dayUsageOf, listOverCap, listUnmarked, markCapped, saveCounters } from "./usage-store.ts";

type ReportDeps = Pick<EgressDeps, "db" | "nodes" | "activity" | "log"> & {
  /** Called for the lines of requests through Connections, in the transaction that writes them. */
  noteUses(tx: Queries, uses: readonly EgressEntry[]): Promise<void>;
};

/** Most reports of one collection. A report with `FULL` entries is followed by the next one at once. */
const AT_ONCE = 10;
const FULL = 5_000;

export class NetworkReports {
  readonly #collections: Coalesced;

  constructor(deps: ReportDeps) {
    this.#collections = new Coalesced(() => collectAll(deps));
  }

  /** Resolves once a report that was requested after this call is saved. */
  collect(): Promise<void> {
    return this.#collections.run();
  }
}

/**
 * Reads a machine's last counters before the machine is removed. A failure is ignored: missing bytes are not worth
 * keeping the machine.
 */
export async function collectFinalCounters({
  networkReports,
}: Pick<EgressDeps, "networkReports">): Promise<void> {
  await networkReports.collect().catch(() => undefined);
}

async function collectAll(deps: ReportDeps): Promise<void> {
  const { node_id: nodeId } = await deps.nodes.info();
  for (let reports = 0; reports < AT_ONCE; reports++) {
    const from = await readCursor(deps.db, nodeId);
    const report = await deps.nodes.networkReport(from);
    for (const id of report.active_sessions) deps.activity.touch(id);
    await write(deps, nodeId, from, report);
    if (report.entries.length < FULL) return;
  }
}

async function write(
  deps: ReportDeps,
  nodeId: string,
  from: string | undefined,
  report: NetworkReport,
): Promise<void> {
  await saveCounters(deps.db, report.counters);
  if (isRepeatedUntilRead(report)) {
    const isRead = await deps.db.transaction().execute(async (tx) => {
      if (!(await moveCursor(tx, nodeId, { from, to: report.cursor }))) return false;
      await insertLines(tx, report.entries);
      await addDenials(tx, report.entries);
      const uses = report.entries.filter(({ kind }) => kind === "connection");
      if (uses.length > 0) await deps.noteUses(tx, uses);
      return true;
    });
    if (isRead && report.lost > 0)
      deps.log.warn({ lost: report.lost }, "lines of egress logs were lost: too many at once");
  }
  await emitCapped(deps, report);
}

/**
 * Whether the node repeats this report until it is asked with a later cursor. A report without lines and activity has
 * no such cursor.
 */
function isRepeatedUntilRead({ entries, lost, active_sessions }: NetworkReport): boolean {
  return entries.length > 0 || lost > 0 || active_sessions.length > 0;
}

/**
 * Sessions whose machine the kernel cut off. The kernel cuts before the cap is reached, when the next packet would
 * exceed it. A cut counts only under the current limit: after midnight, or once the cap was raised, the kernel still
 * cuts at the old limit.
 */
async function listCutByKernel(db: Database, counters: readonly MachineCounters[]): Promise<string[]> {
  const cut = new Map(
    counters.filter(({ is_capped }) => is_capped).map((one) => [one.machine_id.split("-", 1)[0] ?? "", one]),
  );
  const found: string[] = [];
  for (const { id, capBytes } of await listUnmarked(db, [...cut.keys()])) {
    const { machine_id, limit_bytes } = cut.get(id) as MachineCounters;
    const usage = await dayUsageOf(db, id, machine_id);
    if (limitOf(capBytes, { ...usage, isReached: false }) === limit_bytes) found.push(id);
  }
  return found;
}

/** Marks sessions that reached their cap, and emits the event once a day for each. */
async function emitCapped({ db, log }: ReportDeps, { counters }: NetworkReport): Promise<void> {
  const ids = [...new Set([...(await listOverCap(db)), ...(await listCutByKernel(db, counters))])];
  if (ids.length === 0) return;
  const capped = await db.transaction().execute(async (tx) => {
    const marked = (await markCapped(tx, ids)).filter(({ was_capped_today }) => !was_capped_today);
    const events = marked.map((session) => {
      const { cap_bytes, today_bytes } = session;
      return eventOf(session, "egress.session_capped", { cap_bytes, today_bytes });
    });
    await appendEvents(tx, events);
    return marked;
  });
  for (const { id, org_id } of capped)
    log.info({ event: "egress.session_capped", session_id: id, org_id }, "a session reached its egress cap");
}
