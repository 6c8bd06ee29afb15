import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isKernelThread } from "./support/host-processes.ts";

test("a thread of the kernel is recognised, and no process is taken for one", ({ skip }) => {
  expect(isKernelThread(process.pid)).toBe(false);
  expect(isKernelThread(2 ** 22 + 1)).toBe(false);
  if (readFileSync("/proc/2/comm", "utf8") !== "kthreadd\n") skip("the kernel's threads are not seen here");
  expect(isKernelThread(2)).toBe(true);
});
