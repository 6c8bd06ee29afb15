import { expect, it } from "vitest";
import { HOT_MS, hotKeys, MOST_SAVED_STATES } from "./hot.ts";

const NOW = 1_700_000_000_000;
const isOurs = (key: string) => key.startsWith("base");
const hot = (wanted: Record<string, [agoMs: number, times: number]>) =>
  hotKeys(
    new Map(Object.entries(wanted).map(([key, [ago, times]]) => [key, { wantedAt: NOW - ago, times }])),
    isOurs,
    NOW,
  );

it("a baseline is hot after one request, a saved state after two", () => {
  expect(hot({ once: [0, 1], twice: [0, 2], base: [0, 1] })).toEqual(["base", "twice"]);
});

it("a source without a request for a quarter of an hour is not hot", () => {
  expect(hot({ base: [HOT_MS, 9], saved: [HOT_MS, 9], "base@2": [HOT_MS - 1, 1] })).toEqual(["base@2"]);
});

it("the saved states that were wanted last are hot, whichever session has more of them", () => {
  const many = Array.from({ length: MOST_SAVED_STATES + 2 }, (_, n) => [`s${n}`, [n, 2]] as const);
  const kept = hot({ ...Object.fromEntries(many.toReversed()), base: [0, 1] } as never);
  expect(kept).toEqual(["base", ...many.slice(0, MOST_SAVED_STATES).map(([key]) => key)]);
});
