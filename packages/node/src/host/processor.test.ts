import { expect, it } from "vitest";
import { Processor } from "./processor.ts";

it("returns how many processors were idle since the last look", () => {
  const processor = new Processor();
  expect(processor.look(1_000, 50_000).idle).toBe(0);
  expect(processor.look(1_500, 50_250).idle).toBe(0.5);
  expect(processor.look(3_500, 50_250).idle).toBe(0);
  expect(processor.look(4_500, 50_250 + processor.cores * 1_000).idle).toBe(processor.cores);
});

it("returns the same again if too few kernel ticks have passed", () => {
  const processor = new Processor();
  processor.look(1_000, 50_000);
  processor.look(1_500, 50_250);
  expect(processor.look(1_550, 50_250).idle).toBe(0.5);
  expect(processor.look(2_500, 51_250).idle).toBe(1);
});

it("reads this host's processors, of which no more can be idle than there are", async () => {
  const processor = new Processor();
  processor.look();
  await expect.poll(() => processor.look().idle).toBeGreaterThan(0);
  expect(processor.look().idle).toBeLessThanOrEqual(processor.cores);
});
