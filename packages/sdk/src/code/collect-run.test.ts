import { expect, test } from "vitest";
import { RunCollector } from "./collect-run.ts";

test("results that hold next to nothing are kept up to a number, and reported beyond it", async () => {
  let reported = 0;
  const collector = new RunCollector({
    onResult: () => {
      reported++;
    },
  });
  const formats = [{ type: "text/plain" as const, data: "" }];
  for (let n = 0; n < 200_000; n++)
    await collector.take({ event: "result", main: false, formats, isCut: false });
  expect(reported).toBe(200_000);
  expect(collector.execution.results.length).toBeLessThanOrEqual(64 * 1024 * 2);
  expect(collector.execution.truncated).toBe(true);
});
