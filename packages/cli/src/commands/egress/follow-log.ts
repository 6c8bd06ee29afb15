/** Reads a session's egress log: the newest lines, and with --follow each new line. */
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
/** Newest lines kept to find where the poll before ended: log lines have no number, so they are compared as text. */
const REMEMBERED = 50;

interface Follow {
  sessionId: string;
  filter: EgressLogFilter;
  /** Number of earlier lines to begin with. */
  limit: number;
  intervalMs: number;
  signal: AbortSignal;
}

/**
 * Yields the newest lines of a log and then each new line, oldest first, until the session has ended or the signal
 * aborts. Temporary failures of the service are retried.
 */
export async function* followLog(
  client: Client,
  { sessionId, filter, limit, intervalMs, signal }: Follow,
): AsyncGenerator<EgressLogEntry, void, void> {
  const { egress } = client.session(sessionId);
  let known: string[] | undefined;
  while (!signal.aborted) {
    try {
      // Asked before the lines are read: a session that has ended by now logs nothing after this read.
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

/** Reads from the newest line back to the known ones (`known`: newest first); returns the new lines, oldest first. */
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
  // The service deletes old lines, so the log may end with only some of the known ones.
  const start = texts.findIndex((_, at) => matchesAt(texts, at, known));
  return read.slice(0, start < 0 || known.length === 0 ? read.length : start).reverse();
}

/** Whether the known lines begin at this index, compared as far as `texts` goes. */
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
