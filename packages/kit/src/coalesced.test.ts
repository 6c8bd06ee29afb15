import { expect, test } from "vitest";
import { Coalesced } from "./coalesced.ts";

test("calls that arrive during a run share the next one, also after a failure", async () => {
  const runs: PromiseWithResolvers<void>[] = [];
  const coalesced = new Coalesced(() => {
    const run = Promise.withResolvers<void>();
    runs.push(run);
    return run.promise;
  });
  const first = coalesced.run();
  await new Promise(setImmediate);
  const [second, third] = [coalesced.run(), coalesced.run()];
  await new Promise(setImmediate);
  expect([runs.length, second === third]).toEqual([1, true]);
  runs[0]?.reject(new Error("failed"));
  await expect(first).rejects.toThrow("failed");
  await new Promise(setImmediate);
  expect(runs.length).toBe(2);
  const idle = coalesced.idle();
  runs[1]?.resolve();
  await Promise.all([second, idle]);
});
