/** Matches a reference (id, name or beginning of an id) against a list of sessions. */
import type { SessionRecord } from "@vivarium/sdk";

/** Shortest beginning of an id that is accepted: a mistyped name must not match another session. */
export const SHORTEST_BEGINNING = 4;
const BEGINNING_PATTERN = /^[a-z0-9]+$/;

/** Sessions that a reference may mean: by id, else by name, else by the beginning of the id. */
export function matchSession(reference: string, sessions: readonly SessionRecord[]): SessionRecord[] {
  const byId = sessions.filter(({ session_id }) => session_id === reference);
  if (byId.length > 0) return byId;
  const byName = sessions.filter(({ name }) => name === reference);
  if (byName.length > 0) return byName;
  if (!BEGINNING_PATTERN.test(reference)) return [];
  return sessions.filter(({ session_id }) => session_id.startsWith(reference));
}

/** Whether a session matches only by a beginning of its id that is too short to act on. */
export function isTooShort(reference: string, { session_id, name }: SessionRecord): boolean {
  return reference !== session_id && reference !== name && reference.length < SHORTEST_BEGINNING;
}
