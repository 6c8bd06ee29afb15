/** Lanes of `scripts/run-tests` (scripts/lanes.sh), with commands that run no tests. */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeEach, expect, onTestFinished, test } from "vitest";

const LANES = join(import.meta.dirname, "../scripts/lanes.sh");
/** Three seconds: far above the time of a lane of these tests that does not hang. */
const LIMIT = { VIV_TEST_LANE_MINUTES: "0.05", VIV_TEST_LANE_ENDS_WITHIN: "3s" };

let reports: string;
beforeEach(async () => {
  reports = await mkdtemp(join(tmpdir(), "lanes-"));
  onTestFinished(() => rm(reports, { recursive: true }));
});

/** The output of the lanes, then the failed ones, a line each. */
async function printed(script: string, env: object = {}): Promise<string> {
  const whole = `set -euo pipefail; . "$1"; ${script}; wait_for_lanes; printf 'failed: %s\\n' "\${failed[@]}"`;
  const { stdout } = await promisify(execFile)("bash", ["-c", whole, "sh", LANES], {
    env: { ...process.env, reports, ...env },
  });
  return stdout;
}

const log = (lane: string) => readFile(join(reports, `${lane}.log`), "utf8");
/** A zombie, which has ended and was not waited for yet, has no arguments. */
const isThere = async (pid: number) =>
  (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).length > 0;

test("lanes run side by side to their ends, each with a log and a line of what it took", async () => {
  const out = await printed(`lane one echo first; lane two sh -c 'echo second; exit 3'; lane three true`);
  expect(out.split("\n").toSorted()).toEqual(["", "failed: two", "first", "second"]);
  expect([await log("one"), await log("two")]).toEqual(["first\n", "second\n"]);
  const lines = (await readFile(join(reports, "lanes.tsv"), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => line.replace(/\t\d+\t\d+\t/, " ")).toSorted()).toEqual([
    "one 0",
    "three 0",
    "two 3",
  ]);
});

test("a lane that hangs at its end is ended with all that it runs, and says which it is; nothing else is ended", async () => {
  const hangs = `sh -c 'echo over; sleep 600 & echo $!; trap "" TERM; while :; do sleep 1; done'`;
  const out = await printed(
    `sleep 600 & other=$!; lane hangs ${hangs}; lane ends echo done; wait_for_lanes; kill $other && echo other`,
    LIMIT,
  );
  const late = `not over after 0.05 minutes; its log: ${reports}/hangs.log`;
  expect(out).toContain(`== The lane hangs is ${late}: it is ended.\n`);
  expect(out).not.toContain("The lane ends is");
  expect(out.endsWith(`\nother\nfailed: hangs, ${late}\n`)).toBe(true);
  expect(await log("ends")).toBe("done\n");
  const [over, pid] = (await log("hangs")).split("\n");
  expect([over, await isThere(Number(pid))]).toEqual(["over", false]);
});

test("a lane that gets SIGTERM has its last lines in its log, and one that ignores it is killed and has its line", async () => {
  const tidy = `bash -c 'trap "echo cleaned; exit 7" TERM; echo begun; while :; do sleep 0.1; done'`;
  const deaf = `bash -c 'trap "" TERM; while :; do sleep 0.1; done'`;
  await printed(`lane tidy ${tidy}; lane deaf ${deaf}`, LIMIT);
  // Between the two, bash may report the command that it has ended.
  expect(await log("tidy")).toMatch(/^begun\n(.*\n)*cleaned\n$/);
  const lines = (await readFile(join(reports, "lanes.tsv"), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => line.replace(/\t\d+\t\d+\t/, " ")).toSorted()).toEqual(["deaf 137", "tidy 7"]);
});

test("interrupting the run ends its lanes, also one that ignores signals", async () => {
  const deaf = `bash -c 'echo $$; trap "" TERM; while :; do sleep 0.1; done'`;
  const script = `trap 'end_lanes; exit 130' TERM; lane deaf ${deaf}; sleep 0.5; kill -TERM $$; wait_for_lanes`;
  const interrupted = printed(script, { ...LIMIT, VIV_TEST_LANE_MINUTES: "10" });
  await expect(interrupted).rejects.toMatchObject({ code: 130 });
  expect(await isThere(Number(await log("deaf")))).toBe(false);
});

test("lanes after a wait begin once all before it are over, and what failed before stays failed", async () => {
  const out = await printed(`export reports; lane one false; wait_for_lanes; lane two sh -c 'ls "$reports"'`);
  expect((await log("two")).split("\n")).toContain("one.over");
  // The last lines of a lane may come after those that say which failed.
  expect(out.split("\n").filter((line) => line.startsWith("failed"))).toEqual(["failed: one"]);
});
