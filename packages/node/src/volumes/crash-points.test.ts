/** Deaths of the daemon at every step of a volume's life on the host: the next daemon finds all bytes, and no holder that is gone. */
import { mkdtemp, open, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { GIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, test } from "vitest";
import { dieAt } from "../../test-support/die-at.ts";
import type { Work } from "../../test-support/work-until-killed.ts";
import { holderOf, holdVolume, offerImage, releaseOfNobody } from "./holders.ts";
import { imagePath, prepareVolumes, volumesDir } from "./images.ts";
import { Volumes } from "./volumes.ts";

const PATIENCE_MS = 120_000 * SLOWNESS;
const MARK = Buffer.from("acknowledged");
const MACHINE = "one-1";
const UID = 70_001;

let dataDir: string;
let volumes: Volumes;
let target: string;
const id = `vol_${randomId()}`;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "volume-deaths-"));
  target = path.join(dataDir, "offered");
  await prepareVolumes(dataDir);
  volumes = new Volumes({ dataDir, gate: { reserve: async () => () => {} } });
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const die = (crashAt: string, step: Work["step"]) => dieAt({ dataDir, crashAt, step });
const attach = { do: "attach", id, sizeGb: 2, machineId: MACHINE, uid: UID } as const;

/** As a guest does, of a volume that is attached. */
async function write(): Promise<void> {
  const image = await open(imagePath(dataDir, id), "r+");
  await image.write(MARK, 0, MARK.length, GIB / 2);
  await image.close();
}

async function expectMark(): Promise<void> {
  const image = await open(imagePath(dataDir, id));
  const { buffer } = await image.read(Buffer.alloc(MARK.length), 0, MARK.length, GIB / 2);
  await image.close();
  expect(buffer).toEqual(MARK);
}

/** The next daemon takes it from the machine, of which nothing is left, and another machine gets it. */
async function expectFreeAndWhole(): Promise<void> {
  await prepareVolumes(dataDir);
  await releaseOfNobody(dataDir, () => false);
  expect(await holderOf(dataDir, id)).toBeUndefined();
  expect((await stat(imagePath(dataDir, id))).uid).toBe(0);
  await expectMark();
  await volumes.hold(id, 2, "two-1");
  expect(await volumes.list()).toMatchObject([{ volume_id: id, size_gb: 2, machine_id: "two-1" }]);
  await expectMark();
}

test("killed at volume.made: there is no volume yet, and it is made anew", {
  timeout: PATIENCE_MS,
}, async () => {
  await die("volume.made", { do: "make", id, sizeGb: 1 });
  expect(await volumes.list()).toEqual([]);
  await volumes.put(id, 1);
  expect(await volumes.list()).toMatchObject([{ volume_id: id, size_gb: 1 }]);
  expect(await readdir(path.dirname(imagePath(dataDir, id)))).toEqual(["image"]);
});

test.each(["volume.held", "volume.grown", "volume.offered"])(
  "killed at %s of an attach: the volume has its bytes, and is free once its machine is gone",
  { timeout: PATIENCE_MS },
  async (point) => {
    await volumes.put(id, 1);
    await write();
    await die(point, { ...attach, target });
    expect(await holderOf(dataDir, id)).toBe(MACHINE);
    // A machine that is there keeps it: the daemon that adopts it attaches it again.
    await releaseOfNobody(dataDir, () => true);
    await volumes.hold(id, 2, MACHINE);
    await offerImage(dataDir, id, { target, uid: UID });
    expect((await stat(target)).ino).toBe((await stat(imagePath(dataDir, id))).ino);
    await expect(volumes.hold(id, 2, "two-1")).rejects.toMatchObject({ code: "volume_held" });
    await expectFreeAndWhole();
  },
);

test.each(["volume.saved", "volume.released"])(
  "killed at %s of a detach: what the machine wrote is there, and the volume is free",
  { timeout: PATIENCE_MS },
  async (point) => {
    await volumes.put(id, 1);
    await holdVolume(dataDir, id, MACHINE);
    await offerImage(dataDir, id, { target, uid: UID });
    await write();
    await die(point, { do: "detach", id, machineId: MACHINE });
    expect(await holderOf(dataDir, id)).toBe(point === "volume.saved" ? MACHINE : undefined);
    await expectFreeAndWhole();
  },
);

test("killed at volume.removed: nothing of the volume is left", { timeout: PATIENCE_MS }, async () => {
  await volumes.put(id, 1);
  await die("volume.removed", { do: "remove", id });
  expect(await volumes.list()).toEqual([]);
  await prepareVolumes(dataDir);
  expect(await readdir(volumesDir(dataDir))).toEqual([]);
});
