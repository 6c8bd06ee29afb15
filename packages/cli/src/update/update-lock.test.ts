import { existsSync } from "node:fs";
import { randomId } from "@vivarium/kit/id";
import { expect, test } from "vitest";
import { copiesDirOf } from "./copies.ts";
import { takeUpdateLock } from "./update-lock.ts";

test("an install finds an uninstall of its unit at work, and is refused with its name; nothing of either stays", async () => {
  const unit = `of-a-test-${randomId(8)}`;
  const lock = await takeUpdateLock(unit, "viv uninstall");
  try {
    await expect(takeUpdateLock(unit, "viv install")).rejects.toThrow(
      `viv uninstall (pid ${process.pid}) is at work on ${unit}.service`,
    );
  } finally {
    await lock.release();
  }
  expect(existsSync(copiesDirOf(unit))).toBe(false);
});
