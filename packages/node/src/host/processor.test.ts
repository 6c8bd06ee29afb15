import { uptime } from "node:os";
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

it("reads this host's processors, which were idle for some of the time since its start", () => {
  const processor = new Processor();
  processor.look(1_000, 0);
  const { idle } = processor.look(uptime() * 1000);
  expect(idle).toBeGreaterThan(0);
  expect(idle).toBeLessThanOrEqual(processor.cores);
});
