/** The artifact of a session's end, for the statement that ends it: both exist, or neither. */
import { ID_PREFIXES, LIMITS } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import { type QueryCreator, type RawBuilder, sql } from "kysely";
import type { Tables } from "../db/tables.ts";

interface Ended {
  id: string;
  org_id: string;
  project_id: string | null;
  artifact_paths: string[] | null;
}

/** When what is captured now expires, unless it is extended. */
export const firstExpiry: RawBuilder<Date> = sql<Date>`service_now() + make_interval(secs => ${LIMITS.artifactRetentionMs / 1000})`;

/** Whether the capture of a session's end is over: it lasts for a minute at most, whatever its row says. */
export const IS_TEARDOWN_OVER = sql<boolean>`captured_at <= service_now() - make_interval(secs => ${LIMITS.artifactTeardownMs / 1000})`;

/** Nothing for a session that wants no capture. */
export function insertCaptureOfMoved(within: QueryCreator<Tables & { moved: Ended }>) {
  return within
    .insertInto("artifacts")
    .columns(["id", "org_id", "project_id", "session_id", "cause", "paths", "expires_at"])
    .expression((eb) =>
      eb
        .selectFrom("moved")
        .select([
          sql<string>`${ID_PREFIXES.artifact + randomId()}`.as("id"),
          "moved.org_id",
          "moved.project_id",
          "moved.id as session_id",
          sql<"teardown">`'teardown'`.as("cause"),
          sql<string[]>`moved.artifact_paths`.as("paths"),
          firstExpiry.as("expires_at"),
        ])
        .where("moved.artifact_paths", "is not", null),
    );
}
