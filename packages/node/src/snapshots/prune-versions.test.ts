import { existsSync, readdirSync } from "node:fs";
import { link, mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { pruneVersions } from "./prune-versions.ts";

let imagesDir: string;
let day: number;
beforeEach(async () => {
  imagesDir = await mkdtemp(path.join(tmpdir(), "images-"));
  day = 0;
});
afterEach(() => rm(imagesDir, { recursive: true, force: true }));

const templateDir = (template = "base") => path.join(imagesDir, "templates", template);
const versionDir = (version: string, template?: string) => path.join(templateDir(template), version);
const versions = (template?: string) => readdirSync(templateDir(template)).toSorted();

/** Versions, each a day newer than the one before, with baselines that link the version's disk. */
async function install(version: string, { template = "base", sizes = ["small"] } = {}): Promise<void> {
  const dir = versionDir(version, template);
  for (const size of sizes) await mkdir(path.join(dir, size), { recursive: true });
  await writeFile(path.join(dir, "root.ext4"), version);
  for (const size of sizes) await link(path.join(dir, "root.ext4"), path.join(dir, size, "base.raw"));
  day += 1;
  await utimes(path.join(dir, "root.ext4"), day * 86_400, day * 86_400);
}

async function point(name: "current" | "next", version: string, template?: string): Promise<void> {
  await symlink(version, path.join(templateDir(template), name));
}

test("keeps the newest three versions, whatever they are called", async () => {
  for (const version of ["zulu", "b", "c", "a", "d"]) await install(version, { sizes: ["small", "large"] });
  await point("current", "d");
  expect((await pruneVersions(imagesDir)).toSorted()).toEqual(["base@b", "base@zulu"]);
  expect(versions()).toEqual(["a", "c", "current", "d"]);
  expect(await pruneVersions(imagesDir)).toEqual([]);
});

test("keeps the current version and the next one, however old", async () => {
  for (const version of ["1", "2", "3", "4", "5", "6"]) await install(version);
  await point("current", "1");
  await point("next", "2");
  expect(await pruneVersions(imagesDir)).toEqual(["base@3"]);
  expect(versions()).toEqual(["1", "2", "4", "5", "6", "current", "next"]);
});

test("keeps a version that a machine or a saved state was made from, until the last of them is gone", async () => {
  for (const version of ["1", "2", "3", "4", "5"]) await install(version);
  await point("current", "5");
  const held = path.join(imagesDir, "base.raw");
  await link(path.join(versionDir("1"), "root.ext4"), held);
  expect(await pruneVersions(imagesDir)).toEqual(["base@2"]);
  await rm(held);
  expect(await pruneVersions(imagesDir)).toEqual(["base@1"]);
});

test("counts each template separately", async () => {
  for (const version of ["1", "2", "3"]) await install(version);
  for (const version of ["1", "2", "3", "4"]) await install(version, { template: "ai" });
  await point("current", "3");
  await point("current", "4", "ai");
  expect(await pruneVersions(imagesDir)).toEqual(["ai@1"]);
});

test("leaves a template without a current version alone", async () => {
  for (const version of ["1", "2", "3", "4", "5"]) await install(version);
  expect(await pruneVersions(imagesDir)).toEqual([]);
  expect(versions()).toHaveLength(5);
});

test("removes the remains of an earlier removal, and does not count them as a version", async () => {
  for (const version of ["1", "2", "3", "4"]) await install(version);
  await point("current", "4");
  const half = versionDir(".removed-1");
  await rename(versionDir("1"), half);
  expect(await pruneVersions(imagesDir)).toEqual([]);
  expect(existsSync(half)).toBe(false);
  expect(versions()).toEqual(["2", "3", "4", "current"]);
});
