import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it } from "vitest";
import { rootOf } from "./qemu-root.ts";

it("a saved state has the root of the build that made it, as long as that is on this host", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "qemu-root-"));
  const [now, before, elsewhere] = ["a".repeat(64), "b".repeat(64), "c".repeat(64)];
  const dirOf = (build: string) => path.join(dataDir, "qemu-root", build.slice(0, 16));
  for (const build of [now, before]) await mkdir(dirOf(build), { recursive: true });
  const root = { dir: dirOf(now), buildId: now };
  expect(rootOf(root, now)).toBe(dirOf(now));
  expect(rootOf(root, before)).toBe(dirOf(before));
  expect(rootOf(root, elsewhere)).toBeUndefined();
  await rm(dataDir, { recursive: true });
});
