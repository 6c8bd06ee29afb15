import type { SessionRecord } from "@vivarium/sdk";

/** Fewer characters fit other sessions too easily: a mistyped name must not end a session. */
export const SHORTEST_BEGINNING = 4;
const BEGINNING_PATTERN = /^[a-z0-9]+$/;

/** The sessions that a reference may mean: by id, else by name, else by the beginning of the id. */
export function matchSession(reference: string, sessions: readonly SessionRecord[]): SessionRecord[] {
  const byId = sessions.filter(({ session_id }) => session_id === reference);
  if (byId.length > 0) return byId;
  const byName = sessions.filter(({ name }) => name === reference);
  if (byName.length > 0) return byName;
  if (!BEGINNING_PATTERN.test(reference)) return [];
  return sessions.filter(({ session_id }) => session_id.startsWith(reference));
}

/** Whether a match rests on fewer characters of an id than this program acts on. */
export function isTooShort(reference: string, { session_id, name }: SessionRecord): boolean {
  return reference !== session_id && reference !== name && reference.length < SHORTEST_BEGINNING;
}
