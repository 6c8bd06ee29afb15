/** Renders a map as `key=value key=value`; undefined without a map. */
export function renderPairs(pairs: Record<string, string> | undefined): string | undefined {
  if (pairs === undefined) return undefined;
  return Object.entries(pairs)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}
