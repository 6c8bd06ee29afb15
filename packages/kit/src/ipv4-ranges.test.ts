import { expect, test } from "vitest";
import { findOverlap, findRange, networkOf, readRanges, without } from "./ipv4-ranges.ts";

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

test.each([
  ["9.9.9.0/25", "9.9.9.77/24"],
  ["9.9.0.0/16", "9.9.9.77/24"],
  ["8.8.4.4/32", "8.8.4.4/32"],
  ["8.8.4.0/30", undefined],
  ["9.9.10.0/24", undefined],
])("%s overlaps %s", (range, other) => {
  expect(findOverlap(RANGES, range)).toBe(other);
});

test("a range without an address is all of its other addresses", () => {
  expect(without("10.0.0.0/24", ["10.0.1.1"])).toEqual(["10.0.0.0/24"]);
  expect(without("10.0.0.0/30", ["10.0.0.1"])).toEqual(["10.0.0.0/32", "10.0.0.2/31"]);
  expect(without("10.0.0.7/32", ["10.0.0.7"])).toEqual([]);
  const left = without("192.168.0.0/24", ["192.168.0.0", "192.168.0.200", "192.168.0.255"]);
  const all = Array.from({ length: 256 }, (_, last) => `192.168.0.${last}`);
  expect(all.filter((address) => findRange(left, address) === undefined)).toEqual([
    "192.168.0.0",
    "192.168.0.200",
    "192.168.0.255",
  ]);
  expect(findRange(left, "192.168.1.0")).toBe(undefined);
});

test("a range begins at its network address", () => {
  expect(networkOf("10.1.2.3/24")).toBe("10.1.2.0");
  expect(networkOf("255.255.255.255/1")).toBe("128.0.0.0");
  expect(networkOf("10.1.2.3/32")).toBe("10.1.2.3");
});
