import { expect, test } from "vitest";
import { collectList, collectPair, parseCount, parseDuration, parseListen } from "./values.ts";

test("durations take units, and seconds without one", () => {
  expect(["500ms", "30s", "1.5m", "1h", "2"].map(parseDuration)).toEqual([
    500, 30_000, 90_000, 3_600_000, 2000,
  ]);
});

test.each(["", "0", "-1s", "1d", "1 s", "s"])("%j is not a duration", (text) => {
  expect(() => parseDuration(text)).toThrow("Expected a time");
});

test("pairs gather, and keep equals signs of the value", () => {
  expect(collectPair("B=x=y", collectPair("A=", undefined))).toEqual({ A: "", B: "x=y" });
  expect(() => collectPair("=x", undefined)).toThrow("NAME=value");
});

test("lists gather and drop what is empty", () => {
  expect(collectList("c", collectList("a, b,", undefined))).toEqual(["a", "b", "c"]);
});

test.each(["127.0.0.1:7400", "localhost:1", "[::1]:65535"])("%s can be listened on", (text) => {
  expect(parseListen(text)).toBe(text);
});

test.each(["7400", "::1:7400", "host:0", "host:65536", "a b:1"])("%s cannot be listened on", (text) => {
  expect(() => parseListen(text)).toThrow("HOST:PORT");
});

test("counts start at 1", () => {
  expect(parseCount("20")).toBe(20);
  for (const text of ["0", "1.5", "x"]) expect(() => parseCount(text)).toThrow("whole number");
});
