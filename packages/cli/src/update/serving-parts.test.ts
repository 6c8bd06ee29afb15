import { expect, test } from "vitest";
import type { Parts } from "../supervisor/parts-record.ts";
import { lackOf, SeenParts } from "./serving-parts.ts";

const NOW = Date.parse("2027-03-01T09:30:30Z");
const OLD = "2027-03-01T09:30:00Z";
const part = (pid: number, version = "new", since = OLD) => ({ pid, version, since });
const whole: Parts = {
  supervisor: part(1),
  postgres: part(2, "18.4"),
  gateway: part(3),
  node: part(4),
  control: part(5),
};
const lackWith = (changed: Parts, dead: number[] = []) =>
  lackOf({ ...whole, ...changed }, "new", { now: NOW, isRunning: (pid) => !dead.includes(pid) });

test("a version serves once each process is of it and has run for a while", () => {
  expect(lackWith({})).toBeUndefined();
});

test.each(["supervisor", "gateway", "node", "control"])("%s alone can be what is missing", (name) => {
  const { pid = 0 } = whole[name] ?? {};
  expect(lackWith({}, [pid])).toBe(`${name} of new does not stay up`);
  expect(lackWith({ [name]: part(9, "old") })).toBe(`${name} is of old instead of new`);
  expect(lackWith({ [name]: part(9, "new", "2027-03-01T09:30:28Z") })).toContain(
    `${name} of new has not run`,
  );
  const { [name]: _, ...others } = whole;
  expect(lackOf(others, "new", { now: NOW, isRunning: () => true })).toBe(`${name} was not started`);
});

test("a database that died counts, and its version is its own", () => {
  expect(lackWith({}, [2])).toContain("postgres");
});

test("a version that keeps no record is taken by its answer", () => {
  expect(lackOf({}, "new", { now: NOW, isRunning: () => false })).toBeUndefined();
});

test("a process that is started again and again is named", () => {
  const seen = new SeenParts();
  const notes = [10, 11, 11, 12].map((pid) => seen.note({ ...whole, gateway: part(pid) }, 2));
  expect(notes).toEqual([undefined, undefined, undefined, "gateway"]);
});
