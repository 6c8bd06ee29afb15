/**
 * Runs tests of files, each file with its own edits of the product, one after the other in one start of vitest. The
 * first argument is a file with the list of jobs; the second is a file for the outcomes.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { createVitest, type TestModule } from "vitest/node";
import type { Job, Outcome } from "./outcome.ts";
import { without } from "./without.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const [, , jobsFile = "", outcomesFile = ""] = process.argv;
const { jobs, provide } = JSON.parse(readFileSync(jobsFile, "utf8")) as {
  jobs: Job[];
  /** Values that the setup of the project provides to tests. */
  provide: { postgresFolder: string };
};

const vitest = await createVitest("test", {
  root,
  config: false,
  watch: false,
  reporters: [{}],
  maxWorkers: 1,
  projects: jobs.map(({ file, edits }, at) => ({
    plugins: [without(root, edits)],
    test: {
      name: String(at),
      root,
      include: [file],
      provide,
      // Caches for other runs must never contain code without a defence.
      fsModuleCache: false,
      // A test that hangs notices nothing. The limit is long enough for every test that would notice.
      testTimeout: 60_000,
      hookTimeout: 60_000,
      expect: { poll: { timeout: 10_000 } },
    },
  })),
});
const specifications = jobs.map(({ file, tests }, at) => {
  const project = vitest.projects.find(({ name }) => name === String(at));
  if (!project) throw new Error(`vitest made no project of job ${at}, ${file}`);
  const testNamePattern = new RegExp(tests.map((name) => name.replace(/[^\w ]/g, ".")).join("|"));
  return project.createSpecification(resolve(root, file), { testNamePattern });
});
const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications);
const outcomes = jobs.map(({ file }, at): Outcome => {
  const module = testModules.find(({ project }) => project.name === String(at));
  if (!module) return { tests: [], broken: [`${file} was not run`, ...unhandledErrors.map(String)] };
  return { tests: outcomesOf(module), broken: module.errors().map(({ message }) => message) };
});
writeFileSync(outcomesFile, JSON.stringify(outcomes));
await vitest.close();

/** Results of the tests that ran. */
function outcomesOf(module: TestModule): Outcome["tests"] {
  return [...module.children.allTests()].flatMap((test) => {
    const { state, errors = [] } = test.result();
    if (state === "skipped") return [];
    return [
      { name: test.fullName, state, errors: errors.map(({ name = "", message }) => ({ name, message })) },
    ];
  });
}
