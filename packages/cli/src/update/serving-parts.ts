/** Whether all processes of a service keep running, by the record of what runs. Pure. */
import type { Parts } from "../supervisor/parts-record.ts";

/**
 * How long a process must have run. One that dies at its start lives shorter, on a slow host too; it is also the time
 * after which the supervisor counts a process as healthy.
 */
const STABLE_MS = 10_000;

/** The processes of every service. The database is one too, unless it is the operator's own. */
const NEEDED = ["supervisor", "gateway", "node", "control"];

/**
 * What is missing until a service runs with this version; undefined if nothing is. Control answers without a gateway, so
 * an answer alone is not enough. An empty record is that of a version which writes none.
 */
export function lackOf(
  parts: Parts,
  version: string,
  { now, isRunning }: { now: number; isRunning: (pid: number) => boolean },
): string | undefined {
  if (Object.keys(parts).length === 0) return undefined;
  for (const name of new Set([...NEEDED, ...Object.keys(parts)])) {
    const part = parts[name];
    if (!part) return `${name} was not started`;
    if (NEEDED.includes(name) && part.version !== version)
      return `${name} is of ${part.version} instead of ${version}`;
    if (!isRunning(part.pid)) return `${name} of ${version} does not stay up`;
    if (now - Date.parse(part.since) < STABLE_MS)
      return `${name} of ${version} has not run for ${STABLE_MS / 1000} seconds yet`;
  }
  return undefined;
}

/** Counts the processes that were seen under each name. */
export class SeenParts {
  readonly #pids = new Map<string, Set<number>>();

  /** The name of which more processes were seen than the limit, if there is one. */
  note(parts: Parts, limit: number): string | undefined {
    for (const [name, { pid }] of Object.entries(parts))
      this.#pids.set(name, (this.#pids.get(name) ?? new Set()).add(pid));
    return [...this.#pids].find(([, pids]) => pids.size > limit)?.[0];
  }
}
