/** What the node tells of its machines' traffic, written down: bytes per day, log lines, previews that were used. */
import type { MachineCounters, NetworkReport } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { Activity } from "../deadlines/activity.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { addDenials } from "./denials-store.ts";
import { limitOf } from "./limit.ts";
import { insertLines, moveCursor, readCursor } from "./log-store.ts";
import { dayUsageOf, listOverCap, listUnmarked, markCapped, saveCounters } from "./usage-store.ts";

interface ReportDeps {
  db: Database;
  nodes: NodeClient;
  activity: Activity;
  log: Log;
}

/** A report that is full is followed by the next at once, up to this many. */
const AT_ONCE = 10;
const FULL = 5_000;

export class NetworkReports {
  readonly #deps: ReportDeps;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(deps: ReportDeps) {
    this.#deps = deps;
  }

  /** Resolves once a report that was asked for after this call is written down. */
  collect(): Promise<void> {
    this.#next ??= this.#after(this.#running ?? Promise.resolve());
    return this.#next;
  }

  async #after(running: Promise<void>): Promise<void> {
    await running.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await collectAll(this.#deps);
  }
}

/** Before a machine goes: its last counters. Bytes that cannot be had any more are not worth keeping it for. */
export async function collectLast({ networkReports }: { networkReports: NetworkReports }): Promise<void> {
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
  if (isToldUntilRead(report)) {
    const isRead = await deps.db.transaction().execute(async (tx) => {
      if (!(await moveCursor(tx, nodeId, { from, to: report.cursor }))) return false;
      await insertLines(tx, report.entries);
      await addDenials(tx, report.entries);
      return true;
    });
    if (isRead && report.lost > 0)
      deps.log.warn({ lost: report.lost }, "lines of egress logs were lost: too many at once");
  }
  await tellCapped(deps, report);
}

/** Whether the node tells this again until it is asked with a later cursor. Of idle machines there is nothing to move past. */
function isToldUntilRead({ entries, lost, active_sessions }: NetworkReport): boolean {
  return entries.length > 0 || lost > 0 || active_sessions.length > 0;
}

/**
 * Whom the kernel cut: it does so before the sum is reached, when the next packet would pass it. What it says counts
 * only under the limit of now: after midnight, or once the cap was raised, it still cuts by what it was told before.
 */
async function listCut(db: Database, counters: readonly MachineCounters[]): Promise<string[]> {
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

/** Once a day and session: with the mark that says so. */
async function tellCapped({ db, log }: ReportDeps, { counters }: NetworkReport): Promise<void> {
  const ids = [...new Set([...(await listOverCap(db)), ...(await listCut(db, counters))])];
  if (ids.length === 0) return;
  const capped = await db.transaction().execute(async (tx) => {
    const marked = (await markCapped(tx, ids)).filter(({ was_told }) => !was_told);
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
