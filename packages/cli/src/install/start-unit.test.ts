import { expect, test } from "vitest";
import { judge } from "./start-unit.ts";

test.each([
  ["activating", 0, true, "wait"],
  ["active", 0, false, "started"],
  // It is about to be stopped for the restart.
  ["active", 0, true, "wait"],
  // Its start waits for other units.
  ["inactive", 0, true, "wait"],
  // Killed during its start, and started again by systemd.
  ["activating", 1, false, "wait"],
  ["active", 1, false, "started"],
  ["deactivating", 1, false, "wait"],
  ["failed", 0, false, "failed"],
  ["inactive", 0, false, "failed"],
  ["activating", 3, false, "failed"],
] as const)(
  "a unit that is %s after %i restarts, with a job to come: %s: %s",
  (active, restarts, hasJob, verdict) => {
    expect(judge({ active, restarts, hasJob })).toBe(verdict);
  },
);

test("a unit that is started for an update is given up sooner, but not for one failure", () => {
  const judgeAfter = (restarts: number) =>
    judge({ active: "activating", restarts, hasJob: true, hopeless: 2 });
  expect([1, 2].map(judgeAfter)).toEqual(["wait", "failed"]);
});
