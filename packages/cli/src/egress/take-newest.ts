import type { Egress, EgressLogEntry, EgressLogFilter } from "@vivarium/sdk";

const LARGEST_PAGE = 200;

/** The newest lines of a log, at most `limit`, oldest first. */
export async function takeNewest(
  egress: Egress,
  filter: EgressLogFilter,
  limit: number,
  signal?: AbortSignal,
): Promise<EgressLogEntry[]> {
  const taken: EgressLogEntry[] = [];
  for await (const entry of egress.log({ ...filter, pageSize: Math.min(limit, LARGEST_PAGE) }, { signal })) {
    taken.push(entry);
    if (taken.length === limit) break;
  }
  return taken.reverse();
}
