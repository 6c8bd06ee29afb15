/** The column that every read and write of Connections returns beside those of the table. */
import { sql } from "kysely";

export const IS_EXPIRED = sql<boolean>`expires_at <= now()`.as("is_expired");
