import { spawnSync } from "node:child_process";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories, serve, viv } from "../../test-support/program.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { takeLock } from "../supervisor/lock.ts";

inOwnDirectories();

test("it ends once the service that has the data directory answers", async () => {
  const { url } = await serve(() => {});
  const { lockFile } = layoutOf(dir);
  await mkdir(path.dirname(lockFile), { recursive: true });
  await takeLock(lockFile, url);
  const { code } = await viv(url, ["ready"], { MAINPID: String(process.pid) });
  expect(code).toBe(0);
});

test("it fails at once when the main process of the unit is gone", async () => {
  const { pid } = spawnSync("true");
  const { code, err } = await viv("http://127.0.0.1:1", ["ready"], { MAINPID: String(pid) });
  expect(code).toBe(1);
  expect(err).toContain("ended before it answered");
});
