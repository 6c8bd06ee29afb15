import { expect, test } from "vitest";
import { Pace } from "./pace.ts";

/** A clock that only sleeping moves. */
function clockWithSleeps() {
  let at = 1_000;
  const sleeps: number[] = [];
  const sleep = async (ms: number) => {
    sleeps.push(ms);
    at += ms;
  };
  return { clock: { now: () => at, sleep }, sleeps, pass: (ms: number) => (at += ms) };
}

test("work waits until what was taken before has had its time, and all of it is counted", async () => {
  const { clock, sleeps, pass } = clockWithSleeps();
  const pace = new Pace(1_000, clock);
  for (const bytes of [500, 250, 250]) await pace.take(bytes);
  expect(sleeps).toEqual([500, 250]);
  // Time that nobody used is not made up for.
  pass(60_000);
  for (const bytes of [100, 100]) await pace.take(bytes);
  expect(sleeps).toEqual([500, 250, 100]);
  expect(pace.bytes).toBe(1_200);
});

test("without a bound nothing waits", async () => {
  const { clock, sleeps } = clockWithSleeps();
  const pace = new Pace(Number.POSITIVE_INFINITY, clock);
  for (let n = 0; n < 100; n++) await pace.take(2 ** 40);
  expect([pace.bytes, sleeps]).toEqual([100 * 2 ** 40, []]);
});
