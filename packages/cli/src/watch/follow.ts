/** Polls the sessions of the service and reports their changes. */
import { LIMITS } from "@vivarium/contract/api/limits";
import { sleep } from "@vivarium/kit/clock";
import type { Client, SessionRecord, VivariumError } from "@vivarium/sdk";
import { isTemporaryFailure } from "../service/temporary-failure.ts";
import { type Change, findChanges } from "./changes.ts";

/** Result of one poll of the service. */
export interface Poll {
  at: Date;
  sessions: SessionRecord[];
  /** Changes since the poll before; empty at the first. */
  changes: Change[];
  /** The error of a failed poll; `sessions` are then those of the poll before. */
  failure?: VivariumError;
}

/**
 * Polls all sessions until the signal aborts. Temporary failures are reported and retried; any failure of the first
 * poll is thrown, and so is a refused key.
 */
export async function* followSessions(
  client: Client,
  { intervalMs, signal }: { intervalMs: number; signal: AbortSignal },
): AsyncGenerator<Poll, void, void> {
  let known: Map<string, SessionRecord> | undefined;
  let last: SessionRecord[] = [];
  while (!signal.aborted) {
    try {
      const { sessions } = await client.sessions.list({ limit: LIMITS.listMax }, { signal });
      const at = new Date();
      const ended = known ? await describeEnded(client, known, sessions, signal) : new Map();
      const changes = known ? findChanges(known, sessions, ended, at) : [];
      known = new Map(sessions.map((session) => [session.session_id, session]));
      last = sessions;
      yield { at, sessions, changes };
    } catch (error) {
      if (signal.aborted) return;
      if (known === undefined || !isTemporaryFailure(error)) throw error;
      yield { at: new Date(), sessions: last, changes: [], failure: error };
    }
    await sleep(intervalMs, signal);
  }
}

/** Records of sessions that have left the list; the history is read only if there are any. */
async function describeEnded(
  client: Client,
  known: ReadonlyMap<string, SessionRecord>,
  sessions: readonly SessionRecord[],
  signal: AbortSignal,
): Promise<Map<string, SessionRecord>> {
  const present = new Set(sessions.map(({ session_id }) => session_id));
  const missing = [...known.keys()].filter((id) => !present.has(id));
  if (missing.length === 0) return new Map();
  const page = await client.sessions.list({ state: "ended", limit: LIMITS.listMax }, { signal });
  return new Map(page.sessions.map((session) => [session.session_id, session]));
}
