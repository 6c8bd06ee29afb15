/** When an origin is closed by the clock. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { connection } from "../../test-support/bound-world.ts";
import { Origin } from "./origin.ts";
import { SessionShare } from "./session-share.ts";
import { Turns } from "./turns.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** An origin whose Connection ends after so many milliseconds, with one open connection. */
async function openUntil(ms: number) {
  const origin = new Origin({ host: "api.example", name: "api" }, new SessionShare(new Turns()));
  await origin.replace(connection({ expires_at: new Date(Date.now() + ms).toISOString() }));
  const cut = vi.fn(async () => {});
  origin.add({ destroy: cut });
  return { origin, cut };
}

test("what is open is cut at the end of the Connection, also when the system's clock was set back meanwhile", async () => {
  const { origin, cut } = await openUntil(10_000);
  vi.setSystemTime(Date.now() - 3_000);
  await vi.advanceTimersByTimeAsync(12_900);
  expect(cut).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(200);
  expect(cut).toHaveBeenCalledTimes(1);
  expect([origin.active(), origin.closedCode]).toEqual([undefined, "connection_expired"]);
});

test("a clock that is set forward is seen within a minute", async () => {
  const { cut } = await openUntil(3 * 3_600_000);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(cut).not.toHaveBeenCalled();
  vi.setSystemTime(Date.now() + 4 * 3_600_000);
  await vi.advanceTimersByTimeAsync(61_000);
  expect(cut).toHaveBeenCalledTimes(1);
});

test("a Connection that ends after longer than a timer can wait is not cut before", async () => {
  const days = 24 * 3_600_000;
  const { cut } = await openUntil(40 * days);
  await vi.advanceTimersByTimeAsync(26 * days);
  expect(cut).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(14 * days + 1_000);
  expect(cut).toHaveBeenCalledTimes(1);
});
