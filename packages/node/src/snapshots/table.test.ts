import { existsSync, readdirSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setImmediate } from "node:timers/promises";
import { randomId } from "@vivarium/kit/id";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, describe, expect, it, test } from "vitest";
import { makeUnpublished } from "./folder.ts";
import { describeFiles, manifestPath, publishManifest, SNAPSHOT_FILES } from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";
import { SnapshotTable } from "./table.ts";

let dataDir: string;
let table: SnapshotTable;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "snapshots-"));
  await restart();
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

/** A daemon that starts over these files. */
async function restart(): Promise<void> {
  table = new SnapshotTable({ dataDir, log: createLog("test", "silent") });
  await table.removeUnpublished();
  await table.checkAll();
}

async function makeHalf(): Promise<string> {
  const id = `chk_${randomId()}`;
  await makeUnpublished(table.dirOf(id));
  for (const name of SNAPSHOT_FILES) await writeFile(path.join(table.dirOf(id), name), `some ${name}`);
  return id;
}

async function publish(): Promise<string> {
  const id = await makeHalf();
  await publishManifest(table.dirOf(id), {
    ...{ format: 2, kind: "snapshot", template: "base", version: "1", size: "small", accelerator: "tcg" },
    ...{ vcpus: 1, mem_mb: 1024, disk_gb: 8, qemu_build: "build", device_arguments: "devices" },
    ...{ created_at: new Date().toISOString(), own_bytes: 7 },
    files: await describeFiles(table.dirOf(id)),
  });
  return id;
}

const folders = () => readdirSync(path.join(dataDir, "pool/s")).toSorted();
const listed = async () => (await table.list()).map(({ dir }) => path.basename(dir));
const DAMAGED = { code: "snapshot_damaged" };
const UNKNOWN = { code: "snapshot_not_found" };

describe("a start of the daemon", () => {
  it("keeps published snapshots and removes unfinished and half removed ones", async () => {
    const whole = await publish();
    await makeHalf();
    await mkdir(table.dirOf(`chk_${randomId()}`));
    const going = await publish();
    await rename(table.dirOf(going), `${table.dirOf(going)}.removed`);
    await restart();
    expect(folders()).toEqual([whole]);
    expect(await listed()).toEqual([whole]);
  });

  it.each([
    ["lost", (manifest: string) => rm(manifest)],
    ["cut short", (manifest: string) => truncate(manifest, 20)],
    ["empty", (manifest: string) => truncate(manifest, 0)],
  ])("keeps a snapshot whose manifest is %s", async (_what, damage) => {
    const [whole, damaged] = [await publish(), await publish()];
    const files = readdirSync(table.dirOf(damaged));
    await damage(manifestPath(table.dirOf(damaged)));
    const left = readdirSync(table.dirOf(damaged));
    await restart();
    expect(readdirSync(table.dirOf(damaged))).toEqual(left);
    expect(left.filter((name) => name !== "manifest.json")).toEqual(
      files.filter((name) => name !== "manifest.json"),
    );
    expect(await listed()).toEqual([whole]);
    expect(table.damaged).toEqual([damaged]);
    for (const ask of ["find", "get", "check"] as const)
      await expect(table[ask](damaged)).rejects.toMatchObject(DAMAGED);
    await table.remove(damaged);
    expect(folders()).toEqual([whole]);
    await expect(table.find(damaged)).rejects.toMatchObject(UNKNOWN);
    expect(table.damaged).toEqual([]);
  });

  it.each(["mem", "disk.qcow2"])("finds out that %s is missing or cut short", async (name) => {
    const [missing, short] = [await publish(), await publish()];
    await rm(path.join(table.dirOf(missing), name));
    await truncate(path.join(table.dirOf(short), name), 3);
    await restart();
    expect(table.damaged.toSorted()).toEqual([missing, short].toSorted());
    for (const id of [missing, short]) await expect(table.check(id)).rejects.toMatchObject(DAMAGED);
  });
});

test("reports how machines run that are loaded from its snapshots, without those that are not published", async () => {
  const [first] = [await publish(), await publish(), await makeHalf()];
  expect(await table.isolation()).toEqual(["emulated", "emulated"]);
  await table.remove(first);
  expect(await table.isolation()).toEqual(["emulated"]);
});

test("an unfinished snapshot does not count, and publishing it leaves no trace of that", async () => {
  const half = await makeHalf();
  expect(await table.get(half)).toBeUndefined();
  expect(await listed()).toEqual([]);
  const whole = await publish();
  expect(readdirSync(table.dirOf(whole)).toSorted()).toEqual([...SNAPSHOT_FILES, "manifest.json"].toSorted());
});

describe("a load that finds damage", () => {
  it("is remembered while the files are unchanged", async () => {
    const id = await publish();
    const source = await table.check(id);
    const damage = new UnusableSnapshot("state is damaged");
    expect(table.unloadable(source, damage)).toMatchObject(DAMAGED);
    await expect(table.check(id)).rejects.toMatchObject(DAMAGED);
    expect(table.damaged).toEqual([id]);
    // A load may still be tried: it reads the content.
    expect(await table.find(id)).toEqual(source);
    const state = path.join(table.dirOf(id), "state");
    await writeFile(`${state}.good`, "some state");
    await rename(`${state}.good`, state);
    expect(await table.check(id)).toEqual(source);
    expect(table.damaged).toEqual([]);
  });

  it("is distinguished from a load that failed for other reasons", async () => {
    const source = await table.find(await publish());
    const elsewhere = Object.assign(new Error("no such file"), { code: "ENOENT" });
    expect(table.unloadable(source, elsewhere)).toBe(elsewhere);
    expect(table.gone(source, elsewhere)).toBe(elsewhere);
    expect(table.damaged).toEqual([]);
    await table.remove(path.basename(source.dir));
    expect(table.gone(source, elsewhere)).toMatchObject(UNKNOWN);
  });
});

test("removing is repeatable, also after it was interrupted", async () => {
  const id = await publish();
  await mkdir(`${table.dirOf(id)}.removed`);
  await writeFile(`${table.dirOf(id)}.removed/state`, "of an earlier attempt");
  await Promise.all([table.remove(id), table.remove(id)]);
  await table.remove(id);
  expect(existsSync(table.dirOf(id))).toBe(false);
  expect(folders()).toEqual([]);
});

test("removals that begin while the remains of an earlier one are emptied all succeed", async () => {
  const id = await publish();
  const remains = `${table.dirOf(id)}.removed`;
  await mkdir(remains);
  await Promise.all(
    Array.from({ length: 200 }, (_, file) => writeFile(path.join(remains, String(file)), "of before")),
  );
  const removals: Promise<unknown>[] = [];
  for (let i = 0; i < 50; i++) {
    removals.push(table.remove(id).catch((error: unknown) => error));
    await setImmediate();
  }
  expect((await Promise.all(removals)).filter((error) => error !== undefined)).toEqual([]);
  expect(folders()).toEqual([]);
});
