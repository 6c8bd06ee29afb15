import { expect, test } from "vitest";
import { KnownPins } from "./known-pins.ts";

const [A, B] = ["198.51.100.1", "198.51.100.2"];
const open = (until: number) => ({ until, isOpen: Promise.resolve(true) });

test("a pin is known by name and address, as long as it lasts", async () => {
  const pins = new KnownPins();
  pins.add("a.example", [A], open(100));
  await expect(pins.find("a.example", A, 100)).resolves.toBe(true);
  expect(pins.find("a.example", A, 101)).toBeUndefined();
  expect(pins.find("a.example", B, 1)).toBeUndefined();
  expect(pins.find("b.example", A, 1)).toBeUndefined();
});

test("a pin that failed is forgotten, and the one that followed it is not", async () => {
  const pins = new KnownPins();
  const failing = Promise.withResolvers<boolean>();
  pins.add("a.example", [A, B], { until: 100, isOpen: failing.promise });
  expect(pins.find("a.example", A, 100)).toBe(failing.promise);
  pins.add("a.example", [B], open(200));
  failing.resolve(false);
  await failing.promise;
  expect(pins.find("a.example", A, 1)).toBeUndefined();
  await expect(pins.find("a.example", B, 200)).resolves.toBe(true);
});

test("no more are known than the kernel's table can hold", () => {
  const pins = new KnownPins();
  for (let count = 0; count < 5_000; count++) pins.add(`n${count}.example`, [A], open(100));
  const known = Array.from({ length: 5_000 }, (_, count) => pins.find(`n${count}.example`, A, 1));
  expect(known.filter((pin) => pin !== undefined)).toHaveLength(4_096);
  expect(known.at(-1)).toBeDefined();
});
