/**
 * Each test that covers a row of the catalogue fails without the row's defence. The tests run in network namespaces of
 * their own, so that several copies may run side by side. Every run takes one row of each part of the product that has
 * any; with `VIV_TEST_FULL=1` it is all of them.
 */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { beforeAll, expect, inject, test } from "vitest";
import { DEFENCES } from "./catalogue.ts";
import type { Defence } from "./defence.ts";
import { type Job, type Outcome, whyUnnoticed } from "./outcome.ts";
import { replaceOnce } from "./without.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Twice what the rows of a run take on a busy host. */
const PATIENCE_MS = size({ ci: 10, full: 60 }) * 60_000 * SLOWNESS;
/** Starts of vitest side by side, each in a namespace of its own: most of the time their tests wait. */
const LANES = 2;
/** Namespaces have their names in a folder that is shared with the host unless something is mounted there. */
const ALONE = [
  ...["--net", "--mount", "sh", "-ec"],
  'mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; ip link set lo up; exec "$@"',
  "sh",
];

const partOf = ({ edits: [first] }: Defence) => dirname(first?.file ?? "");
const onePerPart = [...Map.groupBy(DEFENCES, partOf).values()].flatMap((rows) => rows.slice(0, 1));
const rows = size({ ci: 0, full: 1 }) ? DEFENCES : onePerPart;
const byFile = [...Map.groupBy(rows, ({ file }) => file)].map(([file, defences]) => ({
  file,
  tests: [...new Set(defences.map(({ test: name }) => name))],
}));

/** In namespaces of their own, one job after the other. */
async function run(jobs: Job[]): Promise<Outcome[]> {
  const folder = await mkdtemp(join(tmpdir(), "defences-"));
  const [jobsFile, outcomesFile] = [join(folder, "jobs.json"), join(folder, "outcomes.json")];
  const provide = { postgresFolder: inject("postgresFolder") };
  await writeFile(jobsFile, JSON.stringify({ jobs, provide }));
  const printed = await new Promise<string>((resolve) => {
    const argv = [
      ...ALONE,
      process.execPath,
      join(root, "test/defences/run-jobs.ts"),
      jobsFile,
      outcomesFile,
    ];
    // Hides this test run from the inner one.
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.startsWith("VITEST")),
    );
    execFile("unshare", argv, { cwd: root, env, timeout: PATIENCE_MS }, (_, stdout, stderr) =>
      resolve(stdout + stderr),
    );
  });
  const written = await readFile(outcomesFile, "utf8").catch(() => {
    throw new Error(`the tests of ${jobs.map(({ file }) => file)} came to nothing:\n${printed}`);
  });
  await rm(folder, { recursive: true });
  const outcomes = JSON.parse(written) as Outcome[];
  expect(outcomes).toHaveLength(jobs.length);
  return outcomes;
}

const untouched: Job[] = byFile.map(({ file, tests }) => ({ file, tests, edits: [] }));
const weakened: Job[] = rows.map(({ file, test: name, edits }) => ({ file, tests: [name], edits }));
const hangs = {
  file: "test/defences/hangs.ts",
  tests: ["waits for what never comes"],
  edits: [],
} satisfies Job;
const outcomes = new Map<Job, Outcome>();
beforeAll(async () => {
  const jobs: Job[] = [...untouched, ...weakened, hangs];
  const lanes = Array.from({ length: LANES }, (_, lane) => jobs.filter((_job, at) => at % LANES === lane));
  await Promise.all(
    lanes.map(async (lane) => {
      const found = await run(lane);
      for (const [at, job] of lane.entries()) outcomes.set(job, found[at] as Outcome);
    }),
  );
}, PATIENCE_MS);

test("the text of every row's defence occurs in the product once", () => {
  for (const { edits } of DEFENCES)
    for (const edit of edits) replaceOnce(readFileSync(join(root, edit.file), "utf8"), edit);
});

test.each(untouched.map((job) => [job.file, job] as const))("%s passes there as it is", (_file, job) => {
  const { tests, broken } = outcomes.get(job) as Outcome;
  expect([broken, tests.filter(({ state }) => state !== "passed")]).toEqual([[], []]);
  for (const name of job.tests)
    expect(
      tests.filter((one) => one.name.includes(name)),
      name,
    ).not.toEqual([]);
});

test("a test that hangs fails and has noticed nothing", () => {
  const outcome = outcomes.get(hangs) as Outcome;
  expect(outcome.tests).toMatchObject([{ state: "failed" }]);
  expect(whyUnnoticed(outcome, "waits for what never comes")).toMatch(
    /^no assertion failed, but: .*timed out/,
  );
});

test.each(rows.map(({ row, off }, at) => [row, off, weakened[at] as Job] as const))(
  "%s: notices that this is away: %s",
  (_row, _off, job) =>
    expect(whyUnnoticed(outcomes.get(job) as Outcome, job.tests[0] as string)).toBe(undefined),
);
