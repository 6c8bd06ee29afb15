import { expect, test } from "vitest";
import { endsWithin, sleep } from "./clock.ts";

test("sleeps at least as long as asked", async () => {
  const startedAt = performance.now();
  await sleep(30);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(29);
});

test("wakes early, without an error, when the signal aborts", async () => {
  const abort = new AbortController();
  const startedAt = performance.now();
  setTimeout(() => abort.abort(), 10);
  await sleep(60_000, abort.signal);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
});

test("does not sleep at all when the signal was aborted before", async () => {
  await sleep(60_000, AbortSignal.abort());
});

test("work that ends in time is distinguished from work that is late or fails", async () => {
  expect(await endsWithin(60_000, sleep(1))).toBe(true);
  expect(await endsWithin(1, sleep(60_000, AbortSignal.timeout(200)))).toBe(false);
  await expect(endsWithin(60_000, Promise.reject(new Error("failed")))).rejects.toThrow("failed");
});
