/**
 * Debounces removals: returns the ids that every pass has seen for longer than `ms`. `since` holds the time of
 * each id's first sight (`performance.now()`) from one pass to the next.
 */
export function seenFor(since: Map<string, number>, ids: ReadonlySet<string>, ms: number): string[] {
  for (const id of since.keys()) if (!ids.has(id)) since.delete(id);
  const now = performance.now();
  for (const id of ids) if (!since.has(id)) since.set(id, now);
  return [...ids].filter((id) => now - (since.get(id) ?? now) > ms);
}
