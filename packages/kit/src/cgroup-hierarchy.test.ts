import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { readCgroupHierarchy } from "./cgroup-hierarchy.ts";

let root: string;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), "cgroup-"));
  onTestFinished(() => rm(root, { recursive: true }));
});

test("version 2 alone is unified, with the controllers that it has", async () => {
  await writeFile(path.join(root, "cgroup.controllers"), "cpuset cpu io memory pids\n");
  const controllers = ["cpuset", "cpu", "io", "memory", "pids"];
  expect(readCgroupHierarchy(root)).toEqual({ kind: "unified", controllers, isHostRoot: true });
});

test("a unified root that is a group of its own is that of a container", async () => {
  await writeFile(path.join(root, "cgroup.controllers"), "\n");
  await writeFile(path.join(root, "cgroup.type"), "domain\n");
  expect(readCgroupHierarchy(root)).toEqual({ kind: "unified", controllers: [], isHostRoot: false });
});

test("version 2 below `unified`, beside controllers of version 1, is hybrid", async () => {
  await mkdir(path.join(root, "memory"));
  await mkdir(path.join(root, "unified"));
  await writeFile(path.join(root, "unified/cgroup.controllers"), "hugetlb\n");
  expect(readCgroupHierarchy(root)).toEqual({ kind: "hybrid" });
});

test("controllers of version 1 alone are version 1, and an empty folder is nothing", async () => {
  expect(readCgroupHierarchy(root)).toEqual({ kind: "none" });
  await mkdir(path.join(root, "memory"));
  expect(readCgroupHierarchy(root)).toEqual({ kind: "v1" });
});
