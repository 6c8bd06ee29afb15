import { expect, test } from "vitest";
import { randomId } from "./id.ts";

test("has the asked length and only lower-case letters and digits", () => {
  for (const length of [1, 21, 64]) expect(randomId(length)).toMatch(new RegExp(`^[a-z0-9]{${length}}$`));
  expect(randomId()).toHaveLength(21);
});

test("does not repeat", () => {
  const ids = new Set(Array.from({ length: 5000 }, () => randomId()));
  expect(ids.size).toBe(5000);
});

test("favours no character", () => {
  const counts = new Map<string, number>();
  for (const char of randomId(720_000)) counts.set(char, (counts.get(char) ?? 0) + 1);
  expect(counts.size).toBe(36);
  // 20,000 expected each, give or take 140; modulo bias would add 2,500 to the first four.
  for (const count of counts.values()) expect(Math.abs(count - 20_000)).toBeLessThan(1000);
});
