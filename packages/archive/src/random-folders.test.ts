import { randomBytes } from "node:crypto";
import { copyFile, mkdir, open } from "node:fs/promises";
import path from "node:path";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import fc from "fast-check";
import { expect, test } from "vitest";
import { BLOCK, newKey, Place, readFolder, type SparseFile, WINDOW } from "../test-support/folders.ts";
import { type Base, packFolder } from "./pack.ts";
import { readBack } from "./read-back.ts";
import { unpackFolder } from "./unpack.ts";

const RUNS = size({ ci: 15, full: 300 });
const PATIENCE_MS = size({ ci: 2, full: 10 }) * 60_000 * SLOWNESS;
const MOST_BYTES = 3 * WINDOW;

/** Places at and around the borders of blocks and windows, and anywhere. */
const anyPlace = fc.oneof(
  fc
    .tuple(fc.nat({ max: MOST_BYTES / BLOCK }), fc.integer({ min: -2, max: 2 }))
    .map(([block, off]) => Math.max(0, block * BLOCK + off)),
  fc.nat({ max: MOST_BYTES }),
);
const anyContent = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 3 * BLOCK }),
  fc.nat({ max: 40 * BLOCK }).map((bytes) => new Uint8Array(randomBytes(bytes + 1))),
  // Zeros that are stored.
  fc.nat({ max: 10 * BLOCK }).map((bytes) => new Uint8Array(bytes + 1)),
);
const anyFile: fc.Arbitrary<SparseFile> = fc.record({
  bytes: anyPlace,
  parts: fc.array(fc.record({ at: anyPlace, content: anyContent }), { maxLength: 6 }),
});
const anyFolder = fc.dictionary(fc.constantFrom("mem", "disk.qcow2", "state", "n-1"), anyFile, {
  noNullPrototype: true,
});
/** Writes into a copy, so that most blocks stay those of the base. */
const anyChanges = fc.array(fc.record({ at: anyPlace, content: anyContent }), { maxLength: 4 });

async function roundTrip(place: Place, dir: string, files: string[], base?: Base): Promise<void> {
  const space = { store: await place.store(), secret: place.secret };
  const own = newKey();
  const target = place.path();
  const { contents } = await packFolder(space, own, { dir, files, ...(base && { base }) });
  await unpackFolder(space, own, { contents, dir: target }, base && { base });
  expect(await readFolder(target)).toEqual(await readFolder(dir));
  expect(await readBack(space, own, contents)).toEqual([]);
}

test(
  "any folder comes back as it was, alone and above any other one",
  async () => {
    await fc.assert(
      fc.asyncProperty(anyFolder, anyFolder, async (folder, other) => {
        using place = new Place();
        const dir = await place.folder(folder);
        await roundTrip(place, dir, Object.keys(folder));
        const base = { dir: await place.folder(other), id: "b" };
        await roundTrip(place, dir, Object.keys(folder), base);
      }),
      { numRuns: RUNS },
    );
  },
  PATIENCE_MS,
);

test(
  "any changes to a copy come back above what was copied",
  async () => {
    await fc.assert(
      fc.asyncProperty(anyFile, anyChanges, fc.boolean(), async (file, changes, isCut) => {
        using place = new Place();
        const base = await place.folder({ mem: file });
        const dir = place.path();
        await mkdir(dir);
        await copyFile(path.join(base, "mem"), path.join(dir, "mem"));
        {
          await using handle = await open(path.join(dir, "mem"), "r+");
          for (const { at, content } of changes) await handle.write(content, 0, content.length, at);
          if (isCut) await handle.truncate(Math.max(0, file.bytes - BLOCK - 1));
        }
        await roundTrip(place, dir, ["mem"], { dir: base, id: "b" });
      }),
      { numRuns: RUNS },
    );
  },
  PATIENCE_MS,
);
