import { sleep } from "@vivarium/kit/clock";
import {
  type Client,
  type Egress,
  type EgressLogEntry,
  type EgressLogFilter,
  VivariumError,
} from "@vivarium/sdk";
import { isTemporaryFailure } from "../../service/temporary-failure.ts";

const LARGEST_PAGE = 200;
/** Lines have no number. This many equal lines in a row count as the same lines. */
const REMEMBERED = 50;

interface Follow {
  sessionId: string;
  filter: EgressLogFilter;
  /** Number of lines to begin with. */
  limit: number;
  intervalMs: number;
  signal: AbortSignal;
}

/**
 * The newest lines of a log and then each that comes, oldest first, until the session has ended or the signal aborts. A
 * service that cannot be reached for a while does not end it.
 */
export async function* followLog(
  client: Client,
  { sessionId, filter, limit, intervalMs, signal }: Follow,
): AsyncGenerator<EgressLogEntry, void, void> {
  const { egress } = client.session(sessionId);
  let known: string[] | undefined;
  while (!signal.aborted) {
    try {
      // Must come before the lines are read: a session that has ended adds no line that this read could miss.
      const hasEnded = known !== undefined && (await isGone(client, sessionId, signal));
      const fresh = known
        ? await newerThan(egress, filter, known, signal)
        : await takeNewest(egress, filter, limit, signal);
      known = [...fresh.map(textOf).reverse(), ...(known ?? [])].slice(0, REMEMBERED);
      yield* fresh;
      if (hasEnded) return;
    } catch (error) {
      if (signal.aborted) return;
      if (known === undefined || !isTemporaryFailure(error)) throw error;
    }
    await sleep(intervalMs, signal);
  }
}

/** The newest lines of a log, at most `limit`, oldest first. */
export async function takeNewest(
  egress: Egress,
  filter: EgressLogFilter,
  limit: number,
  signal?: AbortSignal,
): Promise<EgressLogEntry[]> {
  const taken: EgressLogEntry[] = [];
  for await (const entry of egress.log({ ...filter, pageSize: Math.min(limit, LARGEST_PAGE) }, { signal })) {
    taken.push(entry);
    if (taken.length === limit) break;
  }
  return taken.reverse();
}

/** Reads from the newest line back to the first known one (known: newest first). */
async function newerThan(
  egress: Egress,
  filter: EgressLogFilter,
  known: readonly string[],
  signal: AbortSignal,
): Promise<EgressLogEntry[]> {
  const read: EgressLogEntry[] = [];
  const texts: string[] = [];
  for await (const entry of egress.log(filter, { signal })) {
    read.push(entry);
    texts.push(textOf(entry));
    if (known.length > 0 && matchesAt(texts, texts.length - known.length, known)) break;
  }
  // Old lines are dropped, so the log may end before the known ones do.
  const start = texts.findIndex((_, at) => matchesAt(texts, at, known));
  return read.slice(0, start < 0 || known.length === 0 ? read.length : start).reverse();
}

/** Whether the known lines are at this index, as far as there are lines. */
function matchesAt(texts: readonly string[], at: number, known: readonly string[]): boolean {
  return at >= 0 && texts.slice(at, at + known.length).every((text, i) => text === known[i]);
}

function textOf(entry: EgressLogEntry): string {
  return JSON.stringify(entry);
}

async function isGone(client: Client, sessionId: string, signal: AbortSignal): Promise<boolean> {
  try {
    await client.sessions.get(sessionId, { signal });
    return false;
  } catch (error) {
    if (error instanceof VivariumError && error.code === "not_found") return true;
    throw error;
  }
}
