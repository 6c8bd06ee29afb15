import type { SessionRecord } from "@vivarium/sdk";

/** A change of a session's state between two polls. */
export interface Change {
  at: string;
  session_id: string;
  name?: string | undefined;
  /** State before; absent for a new session. */
  from?: string;
  to: string;
  /** The service's detail of the new state, or the change that must have happened between the polls. */
  detail?: string | undefined;
}

/** Finds the changes between two polls. `ended`: records of sessions that have left the list, from the history. */
export function findChanges(
  before: ReadonlyMap<string, SessionRecord>,
  after: readonly SessionRecord[],
  ended: ReadonlyMap<string, SessionRecord>,
  now: Date,
): Change[] {
  const at = now.toISOString();
  const present = new Set(after.map(({ session_id }) => session_id));
  const gone = [...before.values()].filter(({ session_id }) => !present.has(session_id));
  return [
    ...gone.map((session): Change => {
      const { session_id, name, state } = session;
      return { at, session_id, name, from: state, to: "ended", detail: ended.get(session_id)?.end_reason };
    }),
    // Reversed: lists are newest first, changes are shown oldest first.
    ...after.toReversed().flatMap((session) => changeOf(before.get(session.session_id), session, at)),
  ];
}

function changeOf(before: SessionRecord | undefined, session: SessionRecord, at: string): Change[] {
  const { session_id, name, state } = session;
  const detail = session.status_reason ?? session.status_detail;
  if (before === undefined) return [{ at, session_id, name, to: state, detail }];
  if (before.state !== state) return [{ at, session_id, name, from: before.state, to: state, detail }];
  const between = describeBetween(before, session);
  return between === undefined ? [] : [{ at, session_id, name, from: state, to: state, detail: between }];
}

/** Detects that a session with the same state at both polls was in another state in between. */
function describeBetween(before: SessionRecord, after: SessionRecord): string | undefined {
  if (after.state === "live" && before.active_since !== after.active_since) return "was paused in between";
  if (after.state === "paused" && before.paused_at !== after.paused_at) return "was live in between";
  return undefined;
}
