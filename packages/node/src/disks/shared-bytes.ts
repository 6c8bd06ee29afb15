/** Counts a file's bytes in blocks that it shares with other files. */
import { extentsOf } from "@vivarium/kit/extents";

/** The guest is frozen meanwhile. */
const LIMIT_MS = 3_000;

/** The file's shared bytes, or 0 when they cannot be counted. */
export async function sharedBytes(file: string): Promise<number> {
  const extents = (await extentsOf(file, { timeoutMs: LIMIT_MS, sync: true })) ?? [];
  return extents.reduce((sum, { bytes, isShared }) => sum + (isShared ? bytes : 0), 0);
}
