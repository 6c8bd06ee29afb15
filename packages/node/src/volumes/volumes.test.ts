import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { GIB, MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, test } from "vitest";
import { run } from "../host/run.ts";
import { holderOf, holdVolume, offerImage, releaseOfNobody, releaseVolume } from "./holders.ts";
import { imagePath, prepareVolumes, volumeDir } from "./images.ts";
import { Volumes } from "./volumes.ts";

let dataDir: string;
let volumes: Volumes;
const id = `vol_${randomId()}`;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "volumes-"));
  await prepareVolumes(dataDir);
  volumes = new Volumes({ dataDir, gate: { reserve: async () => () => {} } });
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const look = (file: string) => stat(file);

test("a new volume is an ext4 file system of the guest's user that takes little of the disk, and readable to root alone", async () => {
  expect(await volumes.put(id, 1)).toMatchObject({ volume_id: id, size_gb: 1 });
  const { size, blocks, mode } = await look(imagePath(dataDir, id));
  expect([size, mode & 0o777]).toEqual([GIB, 0o600]);
  expect(blocks * 512).toBeLessThan(8 * MIB);
  expect(await run("dumpe2fs", ["-h", imagePath(dataDir, id)])).toMatch(/Filesystem state: +clean/);
  expect(await run("debugfs", ["-R", "stat /", imagePath(dataDir, id)])).toMatch(/User: +999 +Group: +999/);
});

test("an image that a crash left unfinished does not count, and is made anew", async () => {
  await mkdir(volumeDir(dataDir, id), { recursive: true });
  await writeFile(`${imagePath(dataDir, id)}.part`, "half");
  expect(await volumes.list()).toEqual([]);
  await volumes.put(id, 1);
  expect(await readdir(volumeDir(dataDir, id))).toEqual(["image"]);
});

test("a grown image keeps its content, and a smaller size changes nothing", async () => {
  await volumes.put(id, 1);
  await volumes.put(id, 3);
  expect((await look(imagePath(dataDir, id))).size).toBe(3 * GIB);
  // The host leaves the file system as it is: growing it is up to the guest.
  expect(await run("dumpe2fs", ["-h", imagePath(dataDir, id)])).toMatch(/Block count: +262144\n/);
  expect(await volumes.put(id, 2)).toMatchObject({ size_gb: 3 });
});

test("of many machines that want a volume at once, one has it", async () => {
  await volumes.put(id, 1);
  const wanting = Array.from({ length: 8 }, () => `${randomId()}-1`);
  const outcomes = await Promise.allSettled(wanting.map((machine) => volumes.hold(id, 1, machine)));
  expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  const holder = await holderOf(dataDir, id);
  expect(wanting).toContain(holder);
  for (const outcome of outcomes)
    if (outcome.status === "rejected") expect(outcome.reason).toMatchObject({ code: "volume_held" });
  await volumes.hold(id, 1, holder ?? "");
  await expect(volumes.remove(id)).rejects.toMatchObject({ code: "volume_held" });
  await expect(volumes.put(id, 2)).rejects.toMatchObject({ code: "volume_held" });
});

test("a machine gives back its own volume alone, and its image is root's again", async () => {
  await volumes.put(id, 1);
  await holdVolume(dataDir, id, "one-1");
  const target = path.join(dataDir, "run-volume");
  await offerImage(dataDir, id, { target, uid: 70_001 });
  expect((await look(target)).uid).toBe(70_001);
  await releaseVolume(dataDir, id, "two-1");
  expect(await holderOf(dataDir, id)).toBe("one-1");
  await releaseVolume(dataDir, id, "one-1");
  expect([await holderOf(dataDir, id), (await look(target)).uid]).toEqual([undefined, 0]);
  await releaseVolume(dataDir, id, "one-1");
});

test("after a crash, a volume of a machine that is gone is free, and that of another one is not", async () => {
  const other = `vol_${randomId()}`;
  for (const each of [id, other]) await volumes.put(each, 1);
  await holdVolume(dataDir, id, "gone-1");
  await holdVolume(dataDir, other, "there-1");
  await releaseOfNobody(dataDir, (machine) => machine === "there-1");
  expect([await holderOf(dataDir, id), await holderOf(dataDir, other)]).toEqual([undefined, "there-1"]);
});

test("what a crash left of a removed volume is cleared away, also one that was never whole", async () => {
  await volumes.put(id, 1);
  await mkdir(path.join(dataDir, "pool/v", `${id}.removed`));
  await prepareVolumes(dataDir);
  expect(existsSync(volumeDir(dataDir, `${id}.removed`))).toBe(false);
  await volumes.remove(id);
  await volumes.remove(id);
  expect(await volumes.list()).toEqual([]);
  // A holder without an image: the daemon died while it made the volume, and a start came first.
  await mkdir(volumeDir(dataDir, id));
  await symlink("gone-1", path.join(volumeDir(dataDir, id), "holder"));
  await releaseOfNobody(dataDir, () => false);
  expect(await holderOf(dataDir, id)).toBeUndefined();
});
