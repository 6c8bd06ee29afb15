import type { SessionState } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { countStates } from "./store.ts";

/** All that are not destroyed, of all organisations. */
export async function countByState(db: Queries): Promise<Map<SessionState, number>> {
  return new Map((await countStates(db)).map(({ state, count }) => [state, count]));
}
