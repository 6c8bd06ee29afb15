import path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { takeForCommand } from "../supervisor/lock.ts";
import { COMMAND_LIMIT_MS } from "../supervisor/wait-for-lock.ts";
import { startDeadline } from "./start-deadline.ts";
import { WAIT_FOR_START_MS } from "./start-limit.ts";

inOwnDirectories();

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

const lockFile = () => path.join(dir, "supervisor.lock");

test("the time for a start is over when it has passed", async () => {
  const isOver = startDeadline(lockFile());
  vi.advanceTimersByTime(WAIT_FOR_START_MS - 1);
  expect(await isOver()).toBe(false);
  vi.advanceTimersByTime(1);
  expect(await isOver()).toBe(true);
});

test("it begins once a command has ended that the service waits for, and has an end also if that does not", async () => {
  const lock = await takeForCommand(lockFile(), "viv backup");
  const isOver = startDeadline(lockFile());
  vi.advanceTimersByTime(COMMAND_LIMIT_MS);
  expect(await isOver()).toBe(false);
  vi.advanceTimersByTime(WAIT_FOR_START_MS);
  expect(await isOver()).toBe(true);
  if ("release" in lock) await lock.release();
});
