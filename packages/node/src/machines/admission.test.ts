import { expect, it } from "vitest";
import { lackOfRoom } from "./admission.ts";

const MIB = 1024 * 1024;
const MUCH = 64 * 1024 * MIB;

it("as many machines run as the operator allows, and no more", () => {
  expect(lackOfRoom({ machines: 1, starting: 1 }, { maxMachines: 1 }, MUCH)).toBeUndefined();
  expect(lackOfRoom({ machines: 2, starting: 1 }, { maxMachines: 1 }, MUCH)).toMatch(/maximum of 1/);
});

it("a machine is admitted while 512 MiB stay free beside what all that start will take", () => {
  const lack = (starting: number, free: number) =>
    lackOfRoom({ machines: starting, starting }, { maxMachines: 100 }, free);
  expect(lack(1, 640 * MIB)).toBeUndefined();
  expect(lack(1, 640 * MIB - 1)).toMatch(/memory/);
  expect(lack(10, 1_792 * MIB)).toBeUndefined();
  expect(lack(11, 1_792 * MIB)).toMatch(/memory/);
});

it("the memory that is looked at is this host's", () => {
  expect(lackOfRoom({ machines: 1, starting: 1_000_000 }, { maxMachines: 1 })).toMatch(/memory/);
});
