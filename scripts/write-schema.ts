/** Writes packages/control/src/db/schema.sql, the result of all migrations; with --check it only compares. */
import path from "node:path";
import { dumpSchema } from "@vivarium/control/schema";
import { createLog } from "@vivarium/kit/log";
import { startEmbeddedPostgres } from "./embedded-postgres.ts";
import { writeOrCheck } from "./write-or-check.ts";

const FILE = path.join(import.meta.dirname, "..", "packages", "control", "src", "db", "schema.sql");

const postgres = await startEmbeddedPostgres();
try {
  await writeOrCheck(
    FILE,
    await dumpSchema(postgres.url, createLog("write-schema", "silent")),
    "npm run schema",
  );
} finally {
  await postgres.stop();
}
