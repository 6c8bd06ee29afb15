import { spawn } from "node:child_process";
import { expect, it } from "vitest";
import { identify, isAlive, isOfEarlierBoot, killAndWait } from "./process-identity.ts";

it("does not take a reused pid for the process that had it before", () => {
  const self = identify(process.pid);
  if (!self) throw new Error("/proc is not mounted");
  expect(isAlive(self)).toBe(true);
  expect(isAlive({ ...self, startTicks: "1" })).toBe(false);
  expect(isAlive({ ...self, bootId: "of-another-boot" })).toBe(false);
  expect(isAlive({ ...self, bootId: undefined })).toBe(true);
});

it("knows a process of an earlier boot, and takes one without a boot for none", () => {
  const self = identify(process.pid);
  if (!self) throw new Error("/proc is not mounted");
  expect(isOfEarlierBoot(self)).toBe(false);
  expect(isOfEarlierBoot({ ...self, bootId: undefined })).toBe(false);
  expect(isOfEarlierBoot({ ...self, bootId: "of-another-boot" })).toBe(true);
});

it("returns from a kill only when the process is gone", async () => {
  const child = spawn("sleep", ["60"], { stdio: "ignore" });
  const identity = identify(child.pid as number);
  if (!identity) throw new Error("sleep did not start");
  await killAndWait(identity);
  expect(isAlive(identity)).toBe(false);
  await killAndWait(identity);
});
