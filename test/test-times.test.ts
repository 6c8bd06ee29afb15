import { execFile } from "node:child_process";
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, matchesGlob } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { type Budget, type Report, readLanes, renderTimes, timesOf } from "../scripts/test-times.ts";

const ROOT = join(import.meta.dirname, "..");
const BUDGET: Budget = JSON.parse(readFileSync(join(ROOT, "test/budget.json"), "utf8"));
const MINUTE_MS = 60_000;

const ran = (file: string, fromMinute: number, toMinute: number, tests: Record<string, number> = {}) => ({
  name: `/repo/${file}`,
  startTime: fromMinute * MINUTE_MS,
  endTime: toMinute * MINUTE_MS,
  assertionResults: Object.entries(tests).map(([fullName, duration]) => ({
    fullName,
    duration,
    status: "passed",
  })),
});
const times = (testResults: Report["testResults"], budget: Budget) =>
  timesOf(
    { lanes: readLanes("all\t0\t600\t0\n"), reports: new Map([["all", { testResults }]]), root: "/repo" },
    budget,
  );
const minutesOf = ({ groups }: ReturnType<typeof timesOf>) =>
  Object.fromEntries(groups.map(({ name, ms }) => [name, ms / MINUTE_MS]));

test("files that run side by side share the time, so that the groups take no longer than the run", () => {
  const budget = { a: { files: ["a/*.ts"], minutes: 1 }, b: { files: ["b/*.ts"], minutes: 1 } };
  const results = [ran("a/x.ts", 0, 4), ran("b/y.ts", 2, 6), ran("b/z.ts", 2, 4)];
  // Two minutes alone, then a third of two; b has the rest.
  const { a, b } = minutesOf(times(results, budget)) as { a: number; b: number };
  expect(a).toBeCloseTo(2 + 2 / 3);
  expect(b).toBeCloseTo(4 / 3 + 2);
});

test("a file belongs to the first group that has it; a file without a group is shown as such", () => {
  const budget = { quick: { files: ["e/a.ts"], minutes: 5 }, rest: { files: ["e/*.ts"], minutes: 5 } };
  const reported = times([ran("e/a.ts", 0, 1), ran("e/b.ts", 1, 3), ran("new/c.ts", 3, 4)], budget);
  expect(minutesOf(reported)).toEqual({ quick: 1, rest: 2, "(in no group)": 1 });
  expect(renderTimes(reported, 15)).toContain("Over its budget (test/budget.json): (in no group).");
});

test("the slowest come first, as many as asked for, and a group over its budget is marked", () => {
  const results = [
    ran("a/x.ts", 0, 2, { "x is quick": 10, "x is slow": 90_000 }),
    ran("a/y.ts", 2, 5, { "y is slower": 170_000 }),
  ];
  const text = renderTimes(times(results, { a: { files: ["a/*.ts"], minutes: 4 } }), 1);
  expect(text.split("\n")).toEqual([
    "The last run took 10.0 min in 1 lane.",
    "",
    "lane  minutes  files  exit",
    "all      10.0      2  0",
    "",
    "group  minutes  of  files",
    "a          5.0   4  2  OVER ITS BUDGET",
    "",
    "Slowest files, in seconds:",
    "  180.0  a/y.ts",
    "",
    "Slowest tests, in seconds:",
    "  170.0  a/y.ts: y is slower",
    "",
    "Over its budget (test/budget.json): a.",
  ]);
});

test("a lane that failed says so, and so does one that has left no report", () => {
  const lanes = readLanes("one\t100\t160\t1\ntwo\t130\t400.5\t137\n");
  const reports = new Map([["one", { testResults: [] }]]);
  const text = renderTimes(timesOf({ lanes, reports, root: "/repo" }, {}), 15);
  expect(text).toContain("took 5.0 min in 2 lanes");
  expect(text).toMatch(/^one +1\.0 +0 {2}1 {2}FAILED$/m);
  expect(text).toMatch(/^two +4\.5 +0 {2}137 {2}FAILED {2}left no report$/m);
  expect(() => readLanes("one 100 160 1")).toThrow("expected lane, start, end and exit code");
});

test("a lane that ran again counts once, and the time between two runs not at all", () => {
  const lanes = readLanes("quick\t0\t60\t0\nrest\t7200\t7260\t1\nrest\t9000\t9120\t0\n");
  const results = [ran("a.ts", 150, 151)];
  const reported = timesOf(
    { lanes, reports: new Map([["rest", { testResults: results }]]), root: "/repo" },
    {},
  );
  expect(reported.wallMs).toBe(3 * MINUTE_MS);
  expect(reported.files).toHaveLength(1);
});

describe("the command", () => {
  const lastRun = (folder: string) =>
    promisify(execFile)(process.execPath, [join(ROOT, "scripts/last-run.ts"), folder], { encoding: "utf8" });
  const newFolder = () => {
    const folder = mkdtempSync(join(tmpdir(), "viv-last-run-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    return folder;
  };

  test("reads what a run has left", async () => {
    const folder = newFolder();
    writeFileSync(join(folder, "lanes.tsv"), "unit\t0\t300\t0\n");
    const file = {
      ...ran("", 0, 1, { "it works": 59_000 }),
      name: join(ROOT, "packages/kit/src/id.test.ts"),
    };
    writeFileSync(join(folder, "unit.json"), JSON.stringify({ testResults: [file] }));
    const { stdout } = await lastRun(folder);
    expect(stdout).toMatch(new RegExp(`^unit-client +1\\.0 +${BUDGET["unit-client"]?.minutes} +1$`, "m"));
    expect(stdout).toContain("59.0  packages/kit/src/id.test.ts: it works");
    expect(stdout).toContain("Every group is within its budget.");
  });

  test("says where it looked when there was no run", async () => {
    const folder = newFolder();
    await expect(lastRun(folder)).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining(folder) });
  });
});

describe("the budget", () => {
  const minutes = (names: string[]) => names.reduce((sum, name) => sum + (BUDGET[name]?.minutes ?? 0), 0);

  test("keeps npm test within 12 minutes, and all tests within 40", () => {
    const names = Object.keys(BUDGET);
    expect(minutes(names.filter((name) => name.startsWith("unit-") || name === "e2e-quick"))).toBe(12);
    expect(minutes(names)).toBe(40);
  });

  test("has a group for every file of tests, and in no group a name that no file has", () => {
    const files = globSync(["packages/*/src/**/*.test.ts", "test/**/*.test.ts"], { cwd: ROOT });
    const globs = Object.values(BUDGET).flatMap((group) => group.files);
    expect(files.filter((file) => !globs.some((glob) => matchesGlob(file, glob)))).toEqual([]);
    for (const glob of globs)
      expect(
        files.some((file) => matchesGlob(file, glob)),
        glob,
      ).toBe(true);
  });
});
