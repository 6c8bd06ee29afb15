/** Finds the session that a human means by an id, a name or the beginning of an id. */
import { SESSION_ID_PATTERN } from "@vivarium/contract/api/ids";
import { LIMITS } from "@vivarium/contract/api/limits";
import type { Client, SessionList, SessionRecord } from "@vivarium/sdk";
import { isTooShort, matchSession } from "./match-session.ts";
import { doubtfulSession, UnknownSession, unknownSession } from "./unknown-session.ts";

/** Resolves a reference (id, name or beginning of an id) to the id of a session. */
export type FindSession = (reference: string) => Promise<string>;

/** Resolves one reference. `orEnded`: ended sessions count as well. */
export function findSession(
  client: Client,
  reference: string,
  how: { orEnded?: boolean } = {},
): Promise<string> {
  return sessionFinder(client, how)(reference);
}

/**
 * Resolves several references against one list, so that ending one session does not change which session the next
 * reference means. A full id is returned without a request, even if it is another session's name. Present sessions come
 * before ended ones.
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
 * The session of a list that a reference means. Fails if the reference is ambiguous, also when a session outside the
 * list could match.
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

/** States that are listed one by one where the list of all is full: together these lists hold more sessions. */
const STATES = ["live", "paused", "creating"] as const;

const isFull = ({ sessions }: Listed) => sessions.length >= LIMITS.listMax;

/** Whether sessions outside a full list could match by name: names are unique only within a project. */
function isBeyond(reference: string, listed: Listed): boolean {
  return isFull(listed) && matchSession(reference, listed.sessions).every(({ name }) => name === reference);
}

/** Sessions with this name in all lists. `isCut`: the list of at least one state is full too. */
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
