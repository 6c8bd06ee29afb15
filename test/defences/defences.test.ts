/**
 * Each test that stands for a row of the catalogue of attacks notices when the row's defence is away. They run in a
 * network namespace of their own, so that they may run beside themselves; so they do, a few at once.
 */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { DEFENCES } from "./catalogue.ts";
import { replaceOnce } from "./without.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const PATIENCE_MS = 5 * 60_000;
/** Namespaces have their names in a folder that is shared with the host unless something is mounted there. */
const ALONE = [
  ...["--net", "--mount", "sh", "-ec"],
  'mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; ip link set lo up; exec "$@"',
  "sh",
];

interface Outcome {
  passed: string[];
  failed: string[];
}

/** Runs tests of a file whose names contain one of these; without the defence at this place of the list, if any. */
async function runTests(file: string, names: string[], place?: number): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), "defences-"));
  const report = join(folder, "report.json");
  const pattern = names.map((name) => name.replace(/[^\w ]/g, ".")).join("|");
  const vitest = [process.execPath, join(root, "node_modules/vitest/vitest.mjs"), "run"];
  const options = ["--config", "test/defences/vitest.config.ts", "--reporter=json", `--outputFile=${report}`];
  const away = place === undefined ? {} : { VIV_TEST_WITHOUT: String(place) };
  const env = { ...process.env, VIV_TEST_FILE: file, ...away };
  const printed = await new Promise<string>((resolve) => {
    const argv = [...ALONE, ...vitest, ...options, "-t", pattern];
    execFile("unshare", argv, { cwd: root, env, timeout: PATIENCE_MS }, (_, stdout, stderr) =>
      resolve(stdout + stderr),
    );
  });
  const told = await readFile(report, "utf8").catch(() => {
    throw new Error(`the tests of ${file} told nothing:\n${printed}`);
  });
  await rm(folder, { recursive: true });
  return readReport(told);
}

function readReport(told: string): Outcome {
  const { testResults } = JSON.parse(told) as {
    testResults: { assertionResults: { status: string; fullName: string }[] }[];
  };
  const results = testResults.flatMap(({ assertionResults }) => assertionResults);
  const named = (status: string) =>
    results.filter((result) => result.status === status).map(({ fullName }) => fullName);
  return { passed: named("passed"), failed: named("failed") };
}

const placed = DEFENCES.map((defence, place) => ({ ...defence, place }));
const byFile = Map.groupBy(placed, ({ file }) => file);

describe.concurrent.each([...byFile])("%s", (file, defences) => {
  test("passes there as it is", { timeout: PATIENCE_MS }, async () => {
    const names = [...new Set(defences.map(({ test: name }) => name))];
    const { passed, failed } = await runTests(file, names);
    expect(failed).toEqual([]);
    for (const name of names)
      expect(
        passed.filter((full) => full.includes(name)),
        name,
      ).not.toEqual([]);
  });

  test.each(defences.map((defence) => [defence.row, defence.off, defence] as const))(
    "%s: notices that this is away: %s",
    { timeout: PATIENCE_MS },
    async (_row, _off, defence) => {
      for (const edit of defence.edits) replaceOnce(readFileSync(join(root, edit.file), "utf8"), edit);
      const { failed } = await runTests(file, [defence.test], defence.place);
      expect(failed.filter((full) => full.includes(defence.test))).not.toEqual([]);
    },
  );
});
