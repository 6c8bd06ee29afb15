/**
 * Collects the lines of the egress log until they are sent to the node, and merges equal lines. Lines are limited per
 * machine, so that one machine cannot crowd out the lines of others. Questions, connections and requests through
 * Connections, allowed and refused, have a limit each, so that a guest cannot hide its connections behind a flood of
 * questions or refused attempts. So have answers that carried a credential: they suspend a Connection. Requests beyond
 * their limit are summed up by Connection and outcome, because the audit log counts every use of a credential.
 */
import type { EgressEntry, Flows } from "@vivarium/contract/gateway";

/** Lines in one report. */
const MAX_LINES = 1000;
/** Unsent lines per machine and kind: questions or connections, allowed or refused. */
const MAX_LINES_PER_MACHINE = 200;
/** The same of requests through Connections: as many as a guest can make in a second. */
const MAX_REQUESTS_PER_MACHINE = 1000;
/** Unsent lines of all machines, while the node cannot be reached. */
const MAX_HELD = 40_000;
const MAX_SESSIONS = 10_000;
/** Characters of a time up to its minute. */
const MINUTE = "2026-01-01T00:00".length;

export class EgressLog {
  #lines = new Map<string, EgressEntry>();
  #linesOf = new Map<string, number>();
  #unique = 0;
  #lost = 0;
  #sessions = new Set<string>();

  /**
   * Merges equal refusals and DNS questions, and equal requests of a minute, into one line. An allowed connection has a line of
   * its own.
   */
  add(entry: EgressEntry): void {
    const key = this.#keyOf(entry);
    const alike = this.#lines.get(key);
    if (alike) {
      alike.count = (alike.count ?? 1) + (entry.count ?? 1);
      alike.bytes_out += entry.bytes_out;
      alike.bytes_in += entry.bytes_in;
      if (entry.kind === "connection" && entry.at > alike.at) alike.at = entry.at;
      return;
    }
    const budget = budgetOf(entry);
    const lines = this.#linesOf.get(budget) ?? 0;
    const most = entry.kind === "connection" ? MAX_REQUESTS_PER_MACHINE : MAX_LINES_PER_MACHINE;
    if (!isSum(entry) && (lines >= most || this.#lines.size >= MAX_HELD)) {
      if (entry.kind === "connection") this.add(summed(entry));
      else this.#lost += 1;
      return;
    }
    this.#linesOf.set(budget, lines + 1);
    this.#lines.set(key, { ...entry });
  }

  /** Notes that a preview of this session carried bytes. */
  active(sessionId: string): void {
    if (this.#sessions.size < MAX_SESSIONS) this.#sessions.add(sessionId);
  }

  /** Removes and returns the oldest lines, as many as fit in one report; undefined when there is nothing to report. */
  take(): Flows | undefined {
    const taken = [...this.#lines].slice(0, MAX_LINES);
    if (taken.length === 0 && this.#lost === 0 && this.#sessions.size === 0) return undefined;
    for (const [key, entry] of taken) {
      this.#lines.delete(key);
      const budget = budgetOf(entry);
      const left = (this.#linesOf.get(budget) ?? 1) - 1;
      if (left === 0) this.#linesOf.delete(budget);
      else this.#linesOf.set(budget, left);
    }
    const flows = {
      entries: taken.map(([, entry]) => entry),
      lost: this.#lost,
      active_sessions: [...this.#sessions],
    };
    this.#lost = 0;
    this.#sessions = new Set();
    return flows;
  }

  /** Puts back a report that could not be sent. */
  giveBack(flows: Flows): void {
    this.#lost += flows.lost;
    for (const entry of flows.entries) this.add(entry);
    for (const sessionId of flows.active_sessions) this.active(sessionId);
  }

  #keyOf(entry: EgressEntry): string {
    if (entry.verdict === "allowed" && entry.kind !== "dns" && entry.kind !== "connection") {
      this.#unique += 1;
      return `flow ${this.#unique}`;
    }
    const { machine_id, kind, host, address, port, verdict, reason } = entry;
    const { connection, generation, method, path, rule, status, is_unscanned, is_sent } = entry;
    // The audit log counts by minute. Too many lines are merged across minutes, so that their number stays bounded.
    const minute =
      kind === "connection" && this.#lines.size < MAX_HELD ? entry.at.slice(0, MINUTE) : undefined;
    const request = [connection, generation, method, path, rule, status, is_unscanned, is_sent, minute];
    return JSON.stringify([machine_id, kind, host, address, port, verdict, reason, ...request]);
  }
}

/** A line of many requests. There are at most as many as Connections, outcomes and minutes. */
function summed({ method: _1, path: _2, rule: _3, status: _4, is_unscanned: _5, ...entry }: EgressEntry) {
  return entry;
}

const isSum = ({ kind, method }: EgressEntry) => kind === "connection" && method === undefined;

function budgetOf(entry: EgressEntry): string {
  const { machine_id, kind, verdict, reason } = entry;
  if (isSum(entry)) return `${machine_id} sums`;
  if (reason === "connection_reflected") return `${machine_id} reflected`;
  const what = kind === "dns" ? "questions" : kind === "connection" ? "requests" : "connections";
  return `${machine_id} ${what} ${verdict}`;
}
