/** Results of tests that ran without a defence, and whether the tests noticed. */
import type { Edit } from "./without.ts";

/** Tests of a file, by parts of their names, and the edits of the product for them. */
export interface Job {
  file: string;
  tests: string[];
  edits: Edit[];
}

/** Results of the tests that ran. */
export interface Outcome {
  tests: { name: string; state: string; errors: { name: string; message: string }[] }[];
  /** Why the file, or one of its hooks, failed. */
  broken: string[];
}

/**
 * Why the test of this name does not show that a defence is away; undefined when an assertion of it failed. A test that
 * hung or broke down may have done so for any reason: it would do so with the defence as well on a slow host.
 */
export function whyUnnoticed({ tests, broken }: Outcome, name: string): string | undefined {
  const named = tests.filter((test) => test.name.includes(name));
  const errors = named.flatMap((test) => test.errors);
  if (errors.some((error) => error.name === "AssertionError")) return undefined;
  if (broken.length > 0) return `the run broke: ${broken.join("; ")}`;
  if (named.length === 0) return "no test of that name ran";
  if (errors.length === 0) return "the test passed";
  return `no assertion failed, but: ${errors.map((error) => `${error.name}: ${error.message}`).join("; ")}`;
}
