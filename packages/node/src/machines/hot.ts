/** Which sources of machines are worth having ready. Pure. */

interface Wanted {
  /** Milliseconds since 1970. */
  wantedAt: number;
  times: number;
}

/** A source is hot for this long after it was last asked for or kept hot. */
export const HOT_MS = 15 * 60_000;
/** Starts that make a saved state hot: one that was started from once, such as a fork's, may never be used again. */
const TIMES_OF_HOT_STATES = 2;
/** Most hot saved states of all tenants. The last wanted ones count, so no tenant displaces others for long. */
export const MOST_SAVED_STATES = 8;

/** The hot sources: baselines first, then the saved states that were wanted last. `isOurs`: a baseline. */
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
