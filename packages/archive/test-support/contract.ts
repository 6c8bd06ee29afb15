/** Tests of packing and unpacking that run with every store. */
import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import path from "node:path";
import type { ObjectStore } from "@vivarium/objects/store";
import { expect, test } from "vitest";
import { type ChunkStore, ChunksInObjects } from "../src/chunk-store.ts";
import { packFolder } from "../src/pack.ts";
import { readBack } from "../src/read-back.ts";
import { unpackFolder } from "../src/unpack.ts";
import { BLOCK, newKey, Place, readFolder, takenBytes, WatchedStore, WINDOW } from "./folders.ts";

/**
 * `objects` is asked for when a test begins; every test uses a prefix of its own. `through`: another store that leads to
 * the chunks.
 */
export function testArchive(
  objects: () => ObjectStore,
  through: (chunks: ChunkStore) => ChunkStore = (chunks) => chunks,
): void {
  const newPrefix = () => `p-${randomBytes(6).toString("hex")}/a/`;
  const spaceAt = (prefix: string) => ({
    store: new WatchedStore(through(new ChunksInObjects(objects(), prefix))),
    secret: randomBytes(32),
  });

  test("a folder comes back with its bytes, modes and holes", async () => {
    using place = new Place();
    const space = spaceAt(newPrefix());
    const dir = await place.folder({
      empty: { bytes: 0 },
      small: { bytes: 3, parts: [{ at: 0, content: Buffer.from("abc") }] },
      hole: { bytes: 30 * WINDOW },
      sparse: {
        bytes: 24 * WINDOW + 100,
        parts: [
          { at: 5 * BLOCK + 7, content: randomBytes(3 * BLOCK) },
          { at: 7 * WINDOW - 10, content: randomBytes(2 * WINDOW) },
          { at: 24 * WINDOW + 90, content: Buffer.from("0123456789") },
        ],
      },
    });
    const files = ["empty", "small", "hole", "sparse"];
    const own = newKey();
    const { contents } = await packFolder(space, own, { dir, files });
    const target = place.path();
    await unpackFolder(space, own, { contents, dir: target });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
    expect(await takenBytes(path.join(target, "hole"))).toBe(0);
    expect(await takenBytes(path.join(target, "sparse"))).toBeLessThan(3 * WINDOW);
    expect(await readBack(space, own, contents)).toEqual([]);
  });

  test("a folder with a base costs its difference, and comes back above the base", async () => {
    using place = new Place();
    const space = spaceAt(newPrefix());
    const content = randomBytes(6 * WINDOW);
    const base = await place.folder({
      mem: { bytes: 20 * WINDOW, parts: [{ at: 3 * WINDOW, content }] },
      longer: { bytes: 3 * BLOCK + 5, parts: [{ at: 0, content: content.subarray(0, 3 * BLOCK + 5) }] },
    });
    const changed = Buffer.from(content);
    changed.fill(1, 2 * WINDOW + 10, 2 * WINDOW + 20);
    // It is zeros now, and was not before.
    changed.fill(0, 4 * WINDOW, 4 * WINDOW + BLOCK);
    const dir = await place.folder({
      mem: { bytes: 20 * WINDOW, parts: [{ at: 3 * WINDOW, content: changed }] },
      longer: { bytes: 2 * BLOCK + 5, parts: [{ at: 0, content: content.subarray(0, 2 * BLOCK + 5) }] },
      added: { bytes: 10, parts: [{ at: 0, content: Buffer.from("0123456789") }] },
    });
    const own = newKey();
    const at = { dir: base, id: "b1" };
    const packed = await packFolder(space, own, { dir, files: ["mem", "longer", "added"], base: at });
    expect(packed.differing).toBe(2 * BLOCK + 10);
    expect(packed.chunks).toHaveLength(3);
    const target = place.path();
    await unpackFolder(space, own, { contents: packed.contents, dir: target }, { base: at });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
    expect(await readBack(space, own, packed.contents)).toEqual([]);
  });

  test("an archive of the same space costs what no other archive there has", async () => {
    using place = new Place();
    const space = spaceAt(newPrefix());
    const content = randomBytes(8 * WINDOW);
    const first = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
    const before = await packFolder(space, newKey("a1"), { dir: first, files: ["mem"] });
    content.fill(1, WINDOW, WINDOW + 10);
    const second = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
    const sent = space.store.puts.length;
    const own = newKey("a2");
    const after = await packFolder(space, own, { dir: second, files: ["mem"] });
    expect(space.store.puts.slice(sent)).toHaveLength(2);
    expect(after.sent).toBeLessThan(1.1 * WINDOW);
    expect(after.chunks.filter((name) => before.chunks.includes(name))).toHaveLength(7);
    const target = place.path();
    await unpackFolder(space, own, { contents: after.contents, dir: target });
    expect(await readFolder(target)).toEqual(await readFolder(second));
  });

  test("an interrupted upload is continued: what is there is not sent again", async () => {
    using place = new Place();
    const space = spaceAt(newPrefix());
    const content = randomBytes(12 * WINDOW);
    const dir = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
    const abort = new AbortController();
    const reason = new Error("no longer wanted");
    space.store.onPut = () => {
      if (space.store.puts.length >= 5) abort.abort(reason);
    };
    const interrupted = packFolder(space, newKey(), { dir, files: ["mem"] }, { signal: abort.signal });
    await expect(interrupted).rejects.toBe(reason);
    space.store.onPut = () => undefined;
    const sent = space.store.puts.splice(0);
    expect(sent.length).toBeGreaterThanOrEqual(5);
    const own = newKey();
    const { contents } = await packFolder(space, own, { dir, files: ["mem"] });
    expect(space.store.puts.filter((name) => sent.includes(name))).toEqual([]);
    const target = place.path();
    await unpackFolder(space, own, { contents, dir: target });
    expect(await readFolder(target)).toEqual(await readFolder(dir));
  });

  test("a bounded number of chunks is sent and fetched at once", async () => {
    using place = new Place();
    const space = spaceAt(newPrefix());
    const content = randomBytes(20 * WINDOW);
    const dir = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
    const own = newKey();
    const { contents } = await packFolder(space, own, { dir, files: ["mem"] });
    await unpackFolder(space, own, { contents, dir: place.path() });
    expect(space.store.puts).toHaveLength(21);
    expect(space.store.mostPuts).toBeLessThanOrEqual(4);
    expect(space.store.mostGets).toBeLessThanOrEqual(8);
  });

  test("objects that are gone, and objects of another archive under their name, are refused", async () => {
    using place = new Place();
    const prefix = newPrefix();
    const space = spaceAt(prefix);
    const dir = await place.folder({
      mem: { bytes: 3 * WINDOW, parts: [{ at: 0, content: randomBytes(3 * WINDOW) }] },
    });
    const own = newKey();
    const { contents, chunks } = await packFolder(space, own, { dir, files: ["mem"] });
    const [first = "", second = ""] = chunks;
    const bytes = await space.store.get(second, 2 * WINDOW);
    await objects().put(prefix + first, bytes);
    const target = place.path();
    const unpack = () => unpackFolder(space, own, { contents, dir: target });
    await expect(unpack()).rejects.toMatchObject({ reason: "altered" });
    await objects().delete(prefix + first);
    await expect(unpack()).rejects.toMatchObject({ reason: "missing" });
    await objects().delete(prefix + contents);
    await expect(unpack()).rejects.toMatchObject({ reason: "missing" });
    await expect(stat(target)).rejects.toMatchObject({ code: "ENOENT" });
  });
}
