import { expect, test } from "vitest";
import { findRange, readRanges } from "./ipv4-ranges.ts";

const RANGES = ["9.9.9.77/24", "8.8.4.4/32", "128.0.0.0/1"];

test.each([
  ["9.9.9.0", "9.9.9.77/24"],
  ["9.9.9.255", "9.9.9.77/24"],
  ["9.9.8.255", undefined],
  ["9.9.10.0", undefined],
  ["8.8.4.4", "8.8.4.4/32"],
  ["8.8.4.5", undefined],
  ["128.0.0.0", "128.0.0.0/1"],
  ["255.255.255.255", "128.0.0.0/1"],
  ["127.255.255.255", undefined],
])("%s lies in %s", (address, range) => {
  expect(findRange(RANGES, address)).toBe(range);
});

test("an address that is listed alone is a range of its own", () => {
  expect(readRanges("RANGES", " 8.8.4.4, 9.9.9.0/24,,10.0.0.0/08")).toEqual([
    "8.8.4.4/32",
    "9.9.9.0/24",
    "10.0.0.0/8",
  ]);
  expect(readRanges("RANGES", "")).toEqual([]);
});
