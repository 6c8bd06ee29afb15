/** `key=value` beside one another; nothing for no map. */
export function renderPairs(pairs: Record<string, string> | undefined): string | undefined {
  if (pairs === undefined) return undefined;
  return Object.entries(pairs)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}
