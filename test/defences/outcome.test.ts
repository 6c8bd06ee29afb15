import { expect, test } from "vitest";
import { type Outcome, whyUnnoticed } from "./outcome.ts";

const TEST = "a stranger is refused";
const failed = (...names: string[]): Outcome => ({
  broken: [],
  tests: [
    { name: `strangers > ${TEST}`, state: "failed", errors: names.map((name) => ({ name, message: "oh" })) },
  ],
});

test("a test whose assertion failed has noticed", () => {
  expect(whyUnnoticed(failed("AssertionError"), TEST)).toBe(undefined);
});

test.each(["TestTimeoutError", "HookTimeoutError", "TypeError", "Error"])(
  "a test that ended with %s has noticed nothing",
  (name) => expect(whyUnnoticed(failed(name), TEST)).toBe(`no assertion failed, but: ${name}: oh`),
);

test("a run that broke, a test that passed, and one that was not there have noticed nothing", () => {
  const passed: Outcome = { broken: [], tests: [{ name: TEST, state: "passed", errors: [] }] };
  expect(whyUnnoticed(passed, TEST)).toBe("the test passed");
  expect(whyUnnoticed({ broken: ["no module"], tests: [] }, TEST)).toBe("the run broke: no module");
  expect(whyUnnoticed({ broken: [], tests: [] }, TEST)).toBe("no test of that name ran");
});

test("a failure of another test does not count for the named one", () => {
  const { tests } = failed("AssertionError");
  expect(whyUnnoticed({ broken: [], tests }, "a friend is let in")).toBe("no test of that name ran");
});
