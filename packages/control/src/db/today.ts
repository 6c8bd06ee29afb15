import { sql } from "kysely";

/** The UTC day by the clock of deadlines, `YYYY-MM-DD`. */
export const TODAY = sql<string>`to_char(service_now() at time zone 'UTC', 'YYYY-MM-DD')`;
