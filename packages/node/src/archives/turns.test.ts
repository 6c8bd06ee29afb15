import { expect, test } from "vitest";
import { Turns } from "./turns.ts";

/** A job that runs until the test ends it. */
function heldJob(turns: Turns, signal: AbortSignal = new AbortController().signal) {
  const { promise, resolve: finish } = Promise.withResolvers<void>();
  const job = { hasBegun: false, finish, done: Promise.resolve<unknown>(undefined) };
  job.done = turns.run(signal, async () => {
    job.hasBegun = true;
    await promise;
  });
  job.done.catch(() => {});
  return job;
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("so many jobs run at once, and the others in the order in which they came", async () => {
  const turns = new Turns(2);
  const jobs = Array.from({ length: 4 }, () => heldJob(turns));
  const begun = async () => {
    await settle();
    return jobs.map(({ hasBegun }) => hasBegun);
  };
  expect(await begun()).toEqual([true, true, false, false]);
  jobs[1]?.finish();
  expect(await begun()).toEqual([true, true, true, false]);
  jobs[0]?.finish();
  expect(await begun()).toEqual([true, true, true, true]);
});

test("a job that fails gives its turn on", async () => {
  const turns = new Turns(1);
  const { signal } = new AbortController();
  await expect(turns.run(signal, () => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
  expect(await turns.run(signal, async () => 1)).toBe(1);
});

test("a job that is no longer wanted does not run, and those behind it do", async () => {
  const turns = new Turns(1);
  const leave = new AbortController();
  const [first, second, third] = [heldJob(turns), heldJob(turns, leave.signal), heldJob(turns)];
  leave.abort(new Error("no longer wanted"));
  await expect(second.done).rejects.toThrow("no longer wanted");
  await settle();
  expect([first.hasBegun, second.hasBegun, third.hasBegun]).toEqual([true, false, false]);
  first.finish();
  await settle();
  expect(third.hasBegun).toBe(true);
  expect(second.hasBegun).toBe(false);
  await expect(turns.run(leave.signal, async () => 1)).rejects.toThrow("no longer wanted");
});
