import type { Database } from "../db/pool.ts";
import { deleteOldEvents } from "./store.ts";

/** Events past the retention, which no reader sees any more. */
export async function forgetOldEvents({ db }: { db: Database }): Promise<void> {
  await deleteOldEvents(db);
}
