import type { SessionRecord } from "@vivarium/sdk";

/** A session whose state has changed since the last look. */
export interface Change {
  at: string;
  session_id: string;
  name?: string | undefined;
  /** Absent: the session is new. */
  from?: string;
  to: string;
  /** The service's detail of the state, or what must have happened in between. */
  detail?: string | undefined;
}

/** The changes of sessions between two looks. `ended`: records from the history for sessions only in `before`. */
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
    // Lists are newest first, events happen oldest first.
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

/** The state may be the same at both looks, with another one in between. */
function describeBetween(before: SessionRecord, after: SessionRecord): string | undefined {
  if (after.state === "live" && before.active_since !== after.active_since) return "was paused in between";
  if (after.state === "paused" && before.paused_at !== after.paused_at) return "was live in between";
  return undefined;
}
