import { expect, test } from "vitest";
import {
  collectList,
  collectPair,
  parseCap,
  parseCount,
  parseDuration,
  parseInstant,
  parseListen,
  parseLongDuration,
  parsePausedTtl,
  parsePort,
  parseSince,
} from "./values.ts";

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

test("long durations take days as well", () => {
  expect(["90s", "12h", "1.5d"].map(parseLongDuration)).toEqual([90_000, 43_200_000, 129_600_000]);
  for (const text of ["0d", "d", "2w"]) expect(() => parseLongDuration(text)).toThrow("30d");
});

test("a paused session may be kept for good", () => {
  expect(parsePausedTtl("never")).toBe(-1);
  expect(parsePausedTtl("7d")).toBe(604_800_000);
});

test("an instant is given with its zone, or as a time from now", () => {
  expect(parseInstant("2027-03-01T10:30:00+01:00").toISOString()).toBe("2027-03-01T09:30:00.000Z");
  const before = Date.now() + 7_200_000;
  const ahead = parseInstant("2h").getTime();
  expect(ahead).toBeGreaterThanOrEqual(before);
  expect(ahead).toBeLessThanOrEqual(Date.now() + 7_200_000);
});

test.each(["tomorrow", "2027-03-01", "2027-03-01T09:30:00", "2027-13-01T09:30:00Z", "-2h"])(
  "%j is no instant",
  (text) => {
    expect(() => parseInstant(text)).toThrow("with its zone");
  },
);

test("caps take binary and decimal units, and none", () => {
  const given = ["4096", "10MiB", "1.5 GiB", "500MB", "2kb", "none"];
  expect(given.map(parseCap)).toEqual([4096, 10_485_760, 1_610_612_736, 500_000_000, 2000, 0]);
});

test.each(["", "0", "0MiB", "-1", "10M", "10 mibs", "99999999TiB", "None", "0.2b", "ib"])(
  "%j is no cap",
  (text) => {
    expect(() => parseCap(text)).toThrow("such as 10MiB");
  },
);

test("ports are whole numbers that there are", () => {
  expect(["1", "8000", "65535"].map(parsePort)).toEqual([1, 8000, 65_535]);
  for (const text of ["0", "65536", "080", "-1", "http", "1.5"])
    expect(() => parsePort(text)).toThrow("65535");
});

test("a time back is given as its length, or as an instant with its zone", () => {
  expect(parseSince("2027-03-01T10:30:00+01:00").toISOString()).toBe("2027-03-01T09:30:00.000Z");
  const latest = Date.now() - 7_200_000;
  const since = parseSince("2h").getTime();
  expect(since).toBeGreaterThanOrEqual(latest);
  expect(since).toBeLessThanOrEqual(Date.now() - 7_200_000);
  for (const text of ["yesterday", "2027-03-01", "-2h"]) expect(() => parseSince(text)).toThrow("time back");
});
