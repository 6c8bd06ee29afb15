/** Which sources of machines are worth having ready. Pure. */

interface Wanted {
  /** Milliseconds since 1970. */
  wantedAt: number;
  times: number;
}

/** A source is hot for this long after its last request. */
export const HOT_MS = 15 * 60_000;
/** A saved state that was started from once, such as that of a fork, may never be started from again. */
const TIMES_OF_HOT_STATES = 2;
/** All tenants' saved states share these, so that a tenant who saves many displaces others only briefly. */
export const MOST_SAVED_STATES = 8;

/** Baselines first, then the saved states that were wanted last. */
export function hotKeys(
  wanted: ReadonlyMap<string, Wanted>,
  isOurs: (key: string) => boolean,
  now = Date.now(),
): string[] {
  const recent = [...wanted].filter(([, { wantedAt }]) => now - wantedAt < HOT_MS);
  const saved = recent
    .filter(([key, { times }]) => !isOurs(key) && times >= TIMES_OF_HOT_STATES)
    .toSorted(([, a], [, b]) => b.wantedAt - a.wantedAt)
    .slice(0, MOST_SAVED_STATES);
  return [...recent.filter(([key]) => isOurs(key)), ...saved].map(([key]) => key);
}
