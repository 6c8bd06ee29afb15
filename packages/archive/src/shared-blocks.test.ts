import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { constants, linkSync, mkdirSync, readdirSync, statfsSync, statSync } from "node:fs";
import { copyFile, open } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import {
  BLOCK,
  newKey,
  Place,
  readFolder,
  takenBytes,
  WINDOW,
  writeFolder,
} from "../test-support/folders.ts";
import { packFolder } from "./pack.ts";
import { unpackFolder } from "./unpack.ts";

const FILES = ["mem", "base.raw"];

/** A small file system whose files can share blocks. */
async function inPool(place: Place, use: (pool: string) => Promise<void>): Promise<void> {
  const [image, mount] = [place.path(), place.path()];
  execFileSync("truncate", ["-s", "320M", image]);
  execFileSync("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
  mkdirSync(mount);
  execFileSync("mount", ["-o", "loop", image, mount]);
  try {
    await use(mount);
  } finally {
    execFileSync("umount", [mount]);
  }
}

/** A folder made from another one: `mem` is a clone with some changed blocks, `base.raw` is the same file. */
async function makeAbove(base: string, dir: string): Promise<void> {
  mkdirSync(dir);
  const mem = path.join(dir, "mem");
  await copyFile(path.join(base, "mem"), mem, constants.COPYFILE_FICLONE_FORCE);
  linkSync(path.join(base, "base.raw"), path.join(dir, "base.raw"));
  await using handle = await open(mem, "r+");
  await handle.write(randomBytes(10), 0, 10, 3 * WINDOW + 5 * BLOCK);
  await handle.write(randomBytes(BLOCK), 0, BLOCK, 39 * WINDOW);
}

test("blocks that a file shares with its base are not read, and a file that is the base's is linked again", async () => {
  using place = new Place();
  await inPool(place, async (pool) => {
    const [base, dir, target] = ["base", "dir", "target"].map((name) => path.join(pool, name)) as [
      string,
      string,
      string,
    ];
    const content = randomBytes(20 * WINDOW);
    await writeFolder(base, {
      mem: { bytes: 40 * WINDOW, parts: [{ at: WINDOW, content }] },
      "base.raw": { bytes: 9 * WINDOW, parts: [{ at: 0, content: content.subarray(0, WINDOW) }] },
    });
    await makeAbove(base, dir);
    const space = { store: await place.store(), secret: place.secret };
    const own = newKey();
    const below = { dir: base, id: "b1" };
    let toRead = 0;
    const packed = await packFolder(
      space,
      own,
      { dir, files: FILES, base: below },
      {
        onProgress: (progress) => {
          toRead = progress.toRead;
        },
      },
    );
    expect(packed.differing).toBe(2 * BLOCK);
    expect(toRead).toBeLessThan(WINDOW);
    await unpackFolder(space, own, { contents: packed.contents, dir: target }, { base: below });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
    expect(statSync(path.join(target, "base.raw")).ino).toBe(statSync(path.join(base, "base.raw")).ino);
    expect(await takenBytes(path.join(target, "mem"))).toBeLessThan(22 * WINDOW);
  });
});

test("a disk that is full ends an unpacking with its error, and nothing is left on it", async () => {
  using place = new Place();
  await inPool(place, async (pool) => {
    const dir = await place.folder({
      mem: { bytes: 20 * WINDOW, parts: [{ at: WINDOW, content: randomBytes(12 * WINDOW) }] },
    });
    const space = { store: await place.store(), secret: place.secret };
    const own = newKey();
    const { contents } = await packFolder(space, own, { dir, files: ["mem"] });
    const { bavail, bsize } = statfsSync(pool);
    const filler = path.join(pool, "filler");
    execFileSync("fallocate", ["-l", String(bavail * bsize - 8 * WINDOW), filler]);
    const target = path.join(pool, "target");
    const unpacked = unpackFolder(space, own, { contents, dir: target });
    await expect(unpacked).rejects.toMatchObject({ code: "ENOSPC" });
    expect(readdirSync(pool)).toEqual(["filler"]);
    execFileSync("truncate", ["-s", "0", filler]);
    await unpackFolder(space, own, { contents, dir: target });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
  });
});

test("a base on another file system is copied with its holes", async () => {
  using place = new Place();
  await inPool(place, async (pool) => {
    const [base, dir] = [path.join(pool, "base"), path.join(pool, "dir")];
    await writeFolder(base, {
      mem: { bytes: 40 * WINDOW, parts: [{ at: WINDOW, content: randomBytes(2 * WINDOW) }] },
      "base.raw": { bytes: 9 * WINDOW, parts: [{ at: WINDOW, content: Buffer.from("x") }] },
    });
    await makeAbove(base, dir);
    const space = { store: await place.store(), secret: place.secret };
    const own = newKey();
    const below = { dir: base, id: "b1" };
    const { contents } = await packFolder(space, own, { dir, files: FILES, base: below });
    const target = place.path();
    await unpackFolder(space, own, { contents, dir: target }, { base: below });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
    for (const name of FILES) expect(await takenBytes(path.join(target, name))).toBeLessThan(3 * WINDOW);
  });
});
