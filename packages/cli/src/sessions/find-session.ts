import { SESSION_ID_PATTERN } from "@vivarium/contract/api/ids";
import { LIMITS } from "@vivarium/contract/api/limits";
import type { Client, SessionList, SessionRecord } from "@vivarium/sdk";
import { isTooShort, matchSession } from "./match-session.ts";
import { doubtfulSession, UnknownSession, unknownSession } from "./unknown-session.ts";

/** The id of the session that a human means by its id, its name or the beginning of its id. */
export type FindSession = (reference: string) => Promise<string>;

/** For a verb that works on one session. `orEnded`: the verb also reads the records of ended sessions. */
export function findSession(
  client: Client,
  reference: string,
  how: { orEnded?: boolean } = {},
): Promise<string> {
  return sessionFinder(client, how)(reference);
}

/**
 * For a verb that works on several: they are looked up in one list, so that what the verb does to one does not change
 * which other a reference means. An id in full is taken as it is, without a request; that a session has it for a name
 * changes nothing. Sessions that have not ended go first.
 */
export function sessionFinder(client: Client, { orEnded = false } = {}): FindSession {
  const present = once(() => client.sessions.list({ limit: LIMITS.listMax }));
  const ended = once(() => client.sessions.list({ state: "ended", limit: LIMITS.listMax }));
  const byState = once(() =>
    Promise.all(STATES.map((state) => client.sessions.list({ state, limit: LIMITS.listMax }))),
  );
  return async (reference) => {
    if (SESSION_ID_PATTERN.test(reference)) return reference;
    if (reference === "") throw new UnknownSession("the name of the session is empty", "not_found");
    const listed = await present();
    const found = isBeyond(reference, listed)
      ? pickSession(reference, sessionsNamed(reference, [listed, ...(await byState())]))
      : pickSession(reference, listed);
    if (found !== undefined) return found.session_id;
    const past = await ended();
    const pastOne = orEnded ? pickSession(reference, past) : undefined;
    if (pastOne !== undefined) return pastOne.session_id;
    throw unknownSession(reference, matchSession(reference, past.sessions));
  };
}

/**
 * The one session of a list that a reference means. Fails where the reference may mean another session as well, also
 * one outside the list.
 */
export function pickSession(
  reference: string,
  { sessions, isCut = sessions.length >= LIMITS.listMax }: Listed & { isCut?: boolean },
): SessionRecord | undefined {
  const matches = matchSession(reference, sessions);
  const [first, second] = matches;
  if (first === undefined) return undefined;
  const isInDoubt = isCut && first.session_id !== reference;
  if (second === undefined && !isInDoubt && !isTooShort(reference, first)) return first;
  throw doubtfulSession(reference, matches, isInDoubt);
}

type Listed = Pick<SessionList, "sessions">;

/** The states with lists of their own, which contain more sessions together than the list of all. */
const STATES = ["live", "paused", "creating"] as const;

const isFull = ({ sessions }: Listed) => sessions.length >= LIMITS.listMax;

/** Names are unique in a project only: the sessions that a full list leaves out may have this name as well. */
function isBeyond(reference: string, listed: Listed): boolean {
  return isFull(listed) && matchSession(reference, listed.sessions).every(({ name }) => name === reference);
}

/** `isCut`: one of the lists of a single state leaves out sessions too. */
function sessionsNamed(reference: string, [all, ...byState]: Listed[]): Listed & { isCut: boolean } {
  const sessions = [all, ...byState].flatMap((list) => list?.sessions ?? []);
  const named = sessions.filter(({ name }) => name === reference);
  const byId = new Map(named.map((session) => [session.session_id, session]));
  return { sessions: [...byId.values()], isCut: byState.some(isFull) };
}

function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => {
    asked ??= ask();
    return asked;
  };
}
