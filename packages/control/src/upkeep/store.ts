import { LIMITS } from "@vivarium/contract/api";
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

export async function deleteOldHistory(db: Queries): Promise<void> {
  await db
    .deleteFrom("sessions")
    .where("state", "=", "destroyed")
    .where("machine_released_at", "is not", null)
    .where(
      "ended_at",
      "<",
      sql<Date>`service_now() - make_interval(secs => ${LIMITS.historyRetentionMs / 1000})`,
    )
    .execute();
}
