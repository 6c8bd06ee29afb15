/**
 * One look at what may be removed: those of the ids that every look has seen for longer than `ms`. `since` remembers when
 * each was seen first.
 */
export function seenFor(since: Map<string, number>, ids: ReadonlySet<string>, ms: number): string[] {
  for (const id of since.keys()) if (!ids.has(id)) since.delete(id);
  const now = performance.now();
  for (const id of ids) if (!since.has(id)) since.set(id, now);
  return [...ids].filter((id) => now - (since.get(id) ?? now) > ms);
}
