import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { NodeError } from "../node-error.ts";
import type { Build } from "./build.ts";
import { become } from "./build.ts";
import { BuildError } from "./build-error.ts";
import { Builds } from "./builds.ts";
import type { BuildDeps } from "./deps.ts";

const idOf = (digit: number) => `tpl_${String(digit).repeat(21)}`;
const SPEC = { reference: "docker.io/library/debian:13", sizes: ["small"] };
const credential = { registry: "docker.io", username: "robot", password: "canary" };

let dataDir: string;
let dirOf: (id: string) => string;
const opened: Builds[] = [];
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "builds-"));
  dirOf = (id) => path.join(dataDir, "pool/b", id);
});
afterEach(async () => {
  // A state may be shown before it is written.
  for (const builds of opened.splice(0)) await builds.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** Builds whose work waits for the test, or for its end. */
async function open() {
  const began: { build: Build; end: (error?: unknown) => void }[] = [];
  const run = async (_: BuildDeps, build: Build) => {
    await become(build, { ...build.status, stage: "pull" });
    build.over.signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    build.over.signal.addEventListener("abort", () => reject(build.over.signal.reason));
    began.push({ build, end: (error) => (error === undefined ? resolve() : reject(error)) });
    await promise;
    await become(build, { ...build.status, state: "ready", disk_sha256: "0".repeat(64), sizes: ["small"] });
  };
  const deps = { config: { dataDir }, log: createLog("test", "silent") } as unknown as BuildDeps;
  const builds = await Builds.open(deps, run);
  opened.push(builds);
  const beganOf = async (id: string) => {
    await expect.poll(() => began.at(-1)?.build.status.build_id).toBe(id);
    return began.at(-1) as (typeof began)[number];
  };
  const until = (id: string, state: string) => expect.poll(() => builds.find(id)).toMatchObject({ state });
  return { builds, beganOf, until };
}

it("runs builds one at a time in the order of their calls", async () => {
  const { builds, beganOf, until } = await open();
  const [one, two, three] = [idOf(1), idOf(2), idOf(3)];
  for (const id of [one, two, three]) await builds.put(id, SPEC);
  expect(builds.list().map(({ state, place }) => [state, place])).toEqual([
    ["building", undefined],
    ["queued", 1],
    ["queued", 2],
  ]);
  await builds.remove(two);
  expect(existsSync(dirOf(two))).toBe(false);
  (await beganOf(one)).end();
  await until(one, "ready");
  (await beganOf(three)).end(new BuildError("image_invalid", "a path climbs"));
  await until(three, "failed");
  expect(builds.find(three)).toEqual({
    ...{ build_id: three, state: "failed", stage: "pull" },
    failure: { word: "image_invalid", message: "a path climbs", is_transient: false },
  });
  await expect(builds.put(three, { ...SPEC, reference: "other" })).rejects.toMatchObject({
    code: "build_conflict",
  });
  const again = await builds.put(three, SPEC);
  expect(again).toMatchObject({ build_id: three, state: "building" });
  expect(again).not.toHaveProperty("failure");
  await builds.close();
});

it("begins a build of a layout again with the machine that has it by now", async () => {
  const { builds, beganOf, until } = await open();
  const spec = { ...SPEC, layout: "/workspace/image" };
  const machine = (digit: number) => `${"a".repeat(21)}-${digit}`;
  await builds.put(idOf(1), { ...spec, machine_id: machine(1) });
  const { build, end } = await beganOf(idOf(1));
  expect(build.machineId).toBe(machine(1));
  expect(await readFile(path.join(dirOf(idOf(1)), "build.json"), "utf8")).not.toContain(machine(1));
  end(new NodeError("machine_held", "it is held"));
  await until(idOf(1), "failed");
  await builds.put(idOf(1), { ...spec, machine_id: machine(2) });
  await vi.waitFor(async () => expect((await beganOf(idOf(1))).build.machineId).toBe(machine(2)));
  await expect(builds.put(idOf(1), { ...spec, layout: "/workspace/other" })).rejects.toMatchObject({
    code: "build_conflict",
  });
  await builds.close();
});

it("keeps a credential in memory alone, and only while the build needs it", async () => {
  const { builds, beganOf, until } = await open();
  await builds.put(idOf(1), { ...SPEC, credential });
  const { build, end } = await beganOf(idOf(1));
  expect(build.credential).toEqual(credential);
  const files = await readdir(dirOf(idOf(1)));
  const texts = await Promise.all(files.map((name) => readFile(path.join(dirOf(idOf(1)), name), "utf8")));
  expect(texts.join()).not.toContain("canary");
  end();
  await until(idOf(1), "ready");
  await expect.poll(() => build.credential).toBeUndefined();
});

it("ends the work of a build that is deleted before the call returns, and begins the next one", async () => {
  const { builds, beganOf } = await open();
  await builds.put(idOf(1), SPEC);
  await builds.put(idOf(2), SPEC);
  const { build } = await beganOf(idOf(1));
  let isOver = false;
  void build.work.then(() => {
    isOver = true;
  });
  await builds.remove(idOf(1));
  expect([isOver, existsSync(dirOf(idOf(1)))]).toEqual([true, false]);
  expect(() => builds.find(idOf(1))).toThrow(expect.objectContaining({ code: "build_not_found" }));
  await beganOf(idOf(2));
  await builds.remove(idOf(1));
  await builds.close();
});

it("finds builds that were ready after a death, and those that were not have been interrupted", async () => {
  const first = await open();
  for (const digit of [1, 2, 3]) await first.builds.put(idOf(digit), SPEC);
  (await first.beganOf(idOf(1))).end();
  await first.until(idOf(1), "ready");
  const { build } = await first.beganOf(idOf(2));
  build.log.add("a line");
  await build.log.flush();
  const ready = first.builds.find(idOf(1));
  for (const name of ["layers", "unpack", "small", ".small.tmp"]) {
    await mkdir(path.join(dirOf(idOf(2)), name), { recursive: true });
    await mkdir(path.join(dirOf(idOf(1)), name), { recursive: true });
  }
  await writeFile(path.join(dirOf(idOf(2)), "root.ext4"), "half");
  await mkdir(dirOf(idOf(4)));
  await mkdir(path.join(dataDir, "pool/b", `${idOf(5)}.removed`));
  // The first one is not closed: as after a kill.
  const second = await open();
  expect(second.builds.find(idOf(1))).toEqual(ready);
  for (const [digit, stage] of [
    [2, "pull"],
    [3, undefined],
  ] as const)
    expect(second.builds.find(idOf(digit))).toEqual({
      ...{ build_id: idOf(digit), state: "failed", ...(stage && { stage }) },
      failure: { word: "interrupted", message: expect.any(String), is_transient: true },
    });
  expect(second.builds.logOf(idOf(2)).lines.map(({ text }) => text)).toEqual([
    "a line",
    "failed: the node's daemon restarted",
  ]);
  expect(await readdir(path.join(dataDir, "pool/b"))).toEqual([idOf(1), idOf(2), idOf(3)]);
  expect((await readdir(dirOf(idOf(2)))).toSorted()).toEqual(["build.json", "layers", "log"]);
  expect(await readdir(dirOf(idOf(1)))).toContain("small");
  expect(await readdir(dirOf(idOf(1)))).not.toContain("layers");
  await second.builds.put(idOf(3), SPEC);
  (await second.beganOf(idOf(3))).end();
  await second.until(idOf(3), "ready");
});

it("interrupts all builds at the daemon's end", async () => {
  const { builds, beganOf } = await open();
  await builds.put(idOf(1), SPEC);
  await builds.put(idOf(2), SPEC);
  await beganOf(idOf(1));
  await builds.close();
  const { builds: later } = await open();
  expect(later.list().map(({ failure }) => failure?.word)).toEqual(["interrupted", "interrupted"]);
});
