import { mkdir, mkdtemp, rename, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeLoadable } from "../../test-support/loadable.ts";
import { Baselines } from "./baselines.ts";
import { describeFiles, publishManifest, SNAPSHOT_FILES } from "./manifest.ts";

let imagesDir: string;
let baselines: Baselines;
beforeEach(async () => {
  imagesDir = await mkdtemp(path.join(tmpdir(), "images-"));
  const qemu = { dir: "", buildId: "build", version: "10.0.0" };
  const log = createLog("test", "silent");
  baselines = new Baselines({ imagesDir, dataDir: imagesDir, qemu, log });
});
afterEach(async () => {
  await baselines.close();
  await rm(imagesDir, { recursive: true, force: true });
});

/** A version that is not the current one, so it is verified at each load. */
async function bake(version: string, dir = path.join(imagesDir, "templates/base", version, "small")) {
  await mkdir(dir, { recursive: true });
  for (const name of SNAPSHOT_FILES) await writeFile(path.join(dir, name), name);
  await publishManifest(dir, {
    ...{ format: 2, kind: "baseline", template: "base", version, size: "small", accelerator: "tcg" },
    ...{ vcpus: 1, mem_mb: 1024, disk_gb: 8, qemu_build: "build", device_arguments: "devices" },
    ...{ created_at: new Date().toISOString(), own_bytes: 0, files: await describeFiles(dir) },
  });
  return dir;
}

const shown = () => baselines.all.map(({ manifest: { version } }) => version).toSorted();

test("a version that is removed while the daemon runs is no longer offered", async () => {
  const dirs = [await bake("1"), await bake("2")];
  await baselines.read();
  expect(shown()).toEqual(["1", "2"]);
  expect(baselines.at(dirs[0] ?? "")?.manifest.version).toBe("1");
  await rename(path.join(imagesDir, "templates/base/1"), path.join(imagesDir, "templates/base/.removed-1"));
  expect(shown()).toEqual(["2"]);
  expect(baselines.get("base@1/small")).toBeUndefined();
  expect(await baselines.find("base@1/small")).toBeUndefined();
  expect(baselines.at(dirs[0] ?? "")).toBeUndefined();
  await baselines.read();
  expect(shown()).toEqual(["2"]);
});

/** A template as set-up leaves it, with a current version whose files are checked when it is read. */
async function setUp(template: string, version: string): Promise<void> {
  const folder = path.join(imagesDir, "templates", template);
  const { dir, manifest } = await makeLoadable(path.join(folder, version, "small"));
  await publishManifest(dir, { ...manifest, kind: "baseline", template, version });
  await symlink(version, path.join(folder, "current.part"));
  await rename(path.join(folder, "current.part"), path.join(folder, "current"));
}

test("a template that set-up makes while the daemon runs is offered, and a known one stays in its version", async () => {
  await setUp("base", "1");
  await baselines.read();
  await setUp("base", "2");
  await baselines.notice();
  expect(shown()).toEqual(["1"]);
  await bake("3", path.join(imagesDir, "templates/data/3/small"));
  await baselines.notice();
  expect(baselines.get("data@3/small")).toBeUndefined();
  await setUp("data", "4");
  await baselines.notice();
  expect(baselines.get("data/small")).toMatchObject({ manifest: { version: "4" }, isCurrent: true });
  expect(baselines.get("base/small")?.manifest.version).toBe("1");
});

describe("a current version", () => {
  const damage = () =>
    writeFile(path.join(imagesDir, "templates/base/1/small/layer.qcow2"), "other bytes of the same l");
  const over = new AbortController().signal;

  test("is verified before its first load, also of several at once, and not again", async () => {
    await setUp("base", "1");
    await baselines.read();
    expect(baselines.get("base/small")).toMatchObject({ isCurrent: true, isVerified: false });
    const found = [baselines.findToLoad("base/small"), baselines.findToLoad("base@1/small")];
    for (const one of await Promise.all(found)) expect(one).toMatchObject({ isVerified: true });
    await damage();
    await baselines.read();
    expect(await baselines.findToLoad("base/small")).toMatchObject({ isVerified: true });
  });

  test("is no worse for a verification that could not read it", async () => {
    await setUp("base", "1");
    await baselines.read();
    const file = path.join(imagesDir, "templates/base/1/small/layer.qcow2");
    await rename(file, `${file}.kept`);
    await mkdir(file);
    await expect(baselines.findToLoad("base/small")).rejects.toThrow("EISDIR");
    await rmdir(file);
    await rename(`${file}.kept`, file);
    expect(await baselines.findToLoad("base/small")).toMatchObject({ isVerified: true });
  });

  test.each([
    ["at its first load", () => baselines.findToLoad("base/small")],
    [
      "at the first load of its folder",
      () => baselines.atToLoad(path.join(imagesDir, "templates/base/1/small")),
    ],
    ["some time after the start", () => baselines.checkAll(over, 0)],
  ])("that is damaged is found %s, and not offered from then on", async (_when, find) => {
    await setUp("base", "1");
    await setUp("data", "1");
    await damage();
    await baselines.read();
    expect(baselines.all).toHaveLength(2);
    expect(await find()).toBeUndefined();
    await baselines.notice();
    expect(baselines.all.map(({ manifest }) => manifest.template)).toEqual(["data"]);
    await baselines.read();
    expect(baselines.all.map(({ manifest }) => manifest.template)).toEqual(["data"]);
    expect(await baselines.findToLoad("base/small")).toBeUndefined();
    expect(await baselines.findToLoad("data/small")).toBeDefined();
  });

  test("that is not loaded is verified some time after the start", async () => {
    await setUp("base", "1");
    await baselines.read();
    await baselines.checkAll(over, 0);
    expect(baselines.get("base/small")).toMatchObject({ isVerified: true });
  });

  test("of another QEMU is not offered at all", async () => {
    await setUp("base", "1");
    const other = { dir: "", buildId: "other", version: "10.0.0" };
    const log = createLog("test", "silent");
    const there = new Baselines({ imagesDir, dataDir: imagesDir, qemu: other, log });
    await there.read();
    expect(there.all).toEqual([]);
  });
});

test("a baseline has the origin of its template's version, and is offered without one if the file is missing or unreadable", async () => {
  const dir = (version: string) => path.join(imagesDir, "templates/base", version);
  for (const version of ["1", "2", "3", "4"]) await bake(version);
  const described = { name: "base", version: "1", cadence: "on-demand", built_at: "2027-03-01T09:30:00Z" };
  await writeFile(path.join(dir("1"), "template.json"), JSON.stringify(described));
  await writeFile(path.join(dir("2"), "template.json"), '{"cadence":');
  await writeFile(path.join(dir("3"), "template.json"), '{"built_at":"yesterday"}');
  await baselines.read();
  const origins = baselines.all.map(({ manifest: { version }, origin }) => [version, origin]);
  expect(Object.fromEntries(origins)).toEqual({
    1: { cadence: "on-demand", built_at: "2027-03-01T09:30:00.000Z" },
    2: {},
    3: {},
    4: {},
  });
});

test("a build is found by its id once it is ready, and is not offered to others", async () => {
  const id = `tpl_${"1".repeat(21)}`;
  const build = path.join(imagesDir, "pool/b", id);
  await bake(id, path.join(build, "small"));
  await baselines.read();
  expect(await baselines.find(`${id}/small`)).toBeUndefined();
  await writeFile(path.join(build, "build.json"), JSON.stringify({ status: { state: "building" } }));
  expect(await baselines.find(`${id}/small`)).toBeUndefined();
  expect(await baselines.builtIsolation()).toEqual([]);
  await writeFile(path.join(build, "build.json"), JSON.stringify({ status: { state: "ready" } }));
  for (let time = 0; time < 2; time++) expect(await baselines.builtIsolation()).toEqual(["emulated"]);
  expect(await baselines.find(`${id}/small`)).toMatchObject({
    ...{ dir: path.join(build, "small"), isVerified: false },
  });
  expect(await baselines.find(`${id}/medium`)).toBeUndefined();
  expect(await baselines.find("../../pool/b/small")).toBeUndefined();
  expect(shown()).toEqual([]);
  await rename(build, `${build}.removed`);
  expect(await baselines.find(`${id}/small`)).toBeUndefined();
  expect(await baselines.builtIsolation()).toEqual([]);
});
