/**
 * npm run test:times: prints how long the lanes, groups and tests of the last test run took, from what
 * scripts/run-tests left: lanes.tsv and one report per lane. test/budget.json has the time budget of each group.
 */
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { type Budget, type Report, readLanes, renderTimes, timesOf } from "./test-times.ts";

const ROOT = join(import.meta.dirname, "..");
const SHOWN = 15;

const { VIV_CACHE_DIR, XDG_CACHE_HOME } = process.env;
const cache = VIV_CACHE_DIR || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "vivarium");
const folder = process.argv[2] ?? join(cache, "test-runs", "last");

const text = await readIfAny(join(folder, "lanes.tsv"));
if (text === undefined) {
  console.error(`no test run has left its times in ${folder}; npm test and npm run test:all do`);
  process.exitCode = 1;
} else {
  const lanes = readLanes(text);
  const reports = new Map<string, Report>();
  for (const { name } of lanes) {
    const report = await readIfAny(join(folder, `${name}.json`));
    if (report !== undefined) reports.set(name, JSON.parse(report));
  }
  const budget: Budget = JSON.parse(await readFile(join(ROOT, "test", "budget.json"), "utf8"));
  console.log(renderTimes(timesOf({ lanes, reports, root: ROOT }, budget), SHOWN));
}

async function readIfAny(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
