/** Writes docs/openapi.yaml from the routes of control; with --check it only compares. */
import path from "node:path";
import { describeApi } from "@vivarium/control/app";
import { createLog } from "@vivarium/kit/log";
import { writeOrCheck } from "./write-or-check.ts";

const FILE = path.join(import.meta.dirname, "..", "docs", "openapi.yaml");

await writeOrCheck(FILE, await describeApi(createLog("write-openapi", "silent")), "npm run openapi");
process.exit();
