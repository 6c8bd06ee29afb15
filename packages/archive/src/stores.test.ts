import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { S3Store } from "@vivarium/objects/s3-store";
import { type S3World, startS3World } from "@vivarium/objects/test-support/s3-world";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { testArchive } from "../test-support/contract.ts";
import { newKey, Place, readFolder, WINDOW } from "../test-support/folders.ts";
import { ChunksInObjects } from "./chunk-store.ts";
import { packFolder } from "./pack.ts";
import { unpackFolder } from "./unpack.ts";

describe("archives in a directory", () => {
  const dir = mkdtempSync(path.join(tmpdir(), "archive-store-"));
  let store: DirectoryStore;
  beforeAll(async () => {
    store = await DirectoryStore.open(dir);
  });
  afterAll(() => rmSync(dir, { recursive: true }));
  testArchive(() => store);
});

test("a folder is not packed whole because its base was deleted meanwhile", async () => {
  using place = new Place();
  const dir = await place.folder({ mem: { bytes: WINDOW, parts: [] } });
  const space = { store: await place.store(), secret: place.secret };
  const base = { id: "gone", dir: place.path() };
  await expect(packFolder(space, newKey(), { dir, files: ["mem"], base })).rejects.toThrow("ENOENT");
  // A base that lacks the file is one.
  const other = { id: "other", dir: await place.folder({}) };
  expect(await packFolder(space, newKey(), { dir, files: ["mem"], base: other })).toMatchObject({
    differing: 0,
  });
});

describe("archives in a bucket", () => {
  let world: S3World;
  let store: S3Store;
  beforeAll(async () => {
    world = await startS3World();
    store = new S3Store(world.settings());
  });
  afterAll(async () => {
    await store.close();
    await world[Symbol.asyncDispose]();
  });
  testArchive(() => store);

  test("answers that break off, are lost or are changed on the way cost no archive", async () => {
    using place = new Place();
    const content = Buffer.alloc(9 * WINDOW, "so it is ");
    for (let at = 0; at < content.length; at += WINDOW) content.write(`window ${at}`, at);
    const dir = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
    const space = { store: new ChunksInObjects(store, "faults/a/"), secret: place.secret };
    const own = newKey();
    let calls = 0;
    world.proxy.faultOf = (call) => {
      if (++calls % 4 !== 0) return undefined;
      return call.startsWith("PUT") ? { kind: "lost" } : { kind: "cut", bytes: 20 };
    };
    const target = place.path();
    try {
      const { contents } = await packFolder(space, own, { dir, files: ["mem"] });
      await unpackFolder(space, own, { contents, dir: target });
    } finally {
      world.proxy.faultOf = () => undefined;
    }
    expect(await readFolder(target)).toEqual(await readFolder(dir));
  });
});
