import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { rename, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { newKey, Place, readFolder, type WatchedStore, WINDOW } from "../test-support/folders.ts";
import { digestOf, SpaceSecret, sealChunk } from "./chunks.ts";
import { packFolder } from "./pack.ts";
import { readBack } from "./read-back.ts";
import { removePartial, unpackFolder } from "./unpack.ts";

const FILES = ["mem", "disk"];
let place: Place;
let space: { store: WatchedStore; secret: Buffer };
let own: ReturnType<typeof newKey>;
let dir: string;
let packed: Awaited<ReturnType<typeof packFolder>>;

beforeEach(async () => {
  place = new Place();
  space = { store: await place.store(), secret: place.secret };
  own = newKey();
  const text = Buffer.alloc(WINDOW, "what was said ");
  dir = await place.folder({
    mem: { bytes: 9 * WINDOW, parts: [{ at: WINDOW, content: randomBytes(2 * WINDOW) }] },
    disk: { bytes: WINDOW, parts: [{ at: 0, content: text }] },
  });
  packed = await packFolder(space, own, { dir, files: FILES });
});
afterEach(() => place[Symbol.dispose]());

const unpack = async (options: Parameters<typeof unpackFolder>[3] = {}) => {
  const target = place.path();
  await unpackFolder(space, own, { contents: packed.contents, dir: target }, options);
  return target;
};
/** Nothing of an unpacked folder is there, under any name. */
const expectNothingLeft = () =>
  expect(readdirSync(place.dir).filter((name) => name !== "objects" && name !== path.basename(dir))).toEqual(
    [],
  );

const DAMAGES: [string, string, (bytes: Buffer) => Buffer][] = [
  ["is empty", "cut_short", () => Buffer.alloc(0)],
  ["ends in its head", "cut_short", (bytes) => bytes.subarray(0, 20)],
  ["lacks its last byte", "cut_short", (bytes) => bytes.subarray(0, -1)],
  ["has a byte too many", "too_long", (bytes) => Buffer.concat([bytes, Buffer.from([0])])],
  ["begins with something else", "altered", (bytes) => changedAt(bytes, 0)],
  ["is of a later form", "unknown_form", (bytes) => changedAt(bytes, 7)],
  ["has another nonce", "altered", (bytes) => changedAt(bytes, 10)],
  ["has another byte in the middle", "altered", (bytes) => changedAt(bytes, bytes.length >> 1)],
  ["has another tag", "altered", (bytes) => changedAt(bytes, bytes.length - 1)],
  ["says another length", "cut_short", (bytes) => changedAt(bytes, 21)],
];
const changedAt = (bytes: Buffer, at: number) => {
  const changed = Buffer.from(bytes);
  changed[at] = (changed[at] ?? 0) ^ 1;
  return changed;
};

test.for(DAMAGES)("a chunk that %s is refused, and nothing appears", async ([, reason, damage]) => {
  for (const victim of packed.chunks) {
    space.store.changed = (name, bytes) => (name === victim ? damage(bytes) : bytes);
    await expect(unpack()).rejects.toMatchObject({ reason, message: expect.stringContaining(victim) });
    expect(await readBack(space, own, packed.contents)).toMatchObject([{ error: { reason } }]);
  }
  expectNothingLeft();
  space.store.changed = (_name, bytes) => bytes;
  expect(await readFolder(await unpack())).toEqual(await readFolder(dir));
});

test.for(DAMAGES)("contents of which the object %s are refused", async ([, , damage]) => {
  space.store.changed = (name, bytes) => (name === packed.contents ? damage(bytes) : bytes);
  await expect(unpack()).rejects.toMatchObject({ reason: "altered" });
  expect(await readBack(space, own, packed.contents)).toMatchObject([{ file: undefined }]);
  expectNothingLeft();
});

test("two chunks that have changed places are refused", async () => {
  const [first = "", second = ""] = packed.chunks;
  const objects = new Map([
    [first, await space.store.get(second, 2 * WINDOW)],
    [second, await space.store.get(first, 2 * WINDOW)],
  ]);
  space.store.changed = (name, bytes) => objects.get(name) ?? bytes;
  await expect(unpack()).rejects.toMatchObject({ reason: "altered" });
  expect(await readBack(space, own, packed.contents)).toHaveLength(2);
  expectNothingLeft();
});

test("earlier contents in the place of later ones are refused", async () => {
  const before = await space.store.get(packed.contents, WINDOW);
  await writeFile(path.join(dir, "mem"), "later");
  packed = await packFolder(space, own, { dir, files: FILES });
  space.store.changed = (name, bytes) => (name === packed.contents ? before : bytes);
  await expect(unpack()).rejects.toMatchObject({ reason: "altered" });
  expectNothingLeft();
});

test("a store that gives more than was ever put is not read to its end", async () => {
  const objects = await place.objects;
  const [victim = ""] = packed.chunks;
  await objects.put(`o/a/${victim}`, Buffer.alloc(3 * WINDOW));
  await expect(unpack()).rejects.toMatchObject({ reason: "too_long" });
  expectNothingLeft();
});

test("a chunk that holds another content, or much more of it, is refused though it has the right key", async () => {
  const objects = await place.objects;
  const secret = new SpaceSecret(space.secret);
  const digest = digestOf(Buffer.alloc(WINDOW, "what was said "));
  const victim = `o/a/${secret.nameOf(digest)}`;
  await objects.put(victim, await sealChunk(secret, digest, Buffer.alloc(WINDOW, "what was not ")));
  await expect(unpack()).rejects.toMatchObject({ message: expect.stringContaining("another content") });
  await objects.put(victim, await sealChunk(secret, digest, Buffer.alloc(50 * WINDOW)));
  await expect(unpack()).rejects.toMatchObject({ message: expect.stringContaining("to at most") });
  expectNothingLeft();
});

test("another key, another label and another secret open nothing", async () => {
  const target = () => ({ contents: packed.contents, dir: place.path() });
  const other = { ...own, key: randomBytes(32) };
  await expect(unpackFolder(space, other, target())).rejects.toMatchObject({ reason: "wrong_key" });
  await expect(unpackFolder(space, { ...own, label: "a2" }, target())).rejects.toMatchObject({
    reason: "wrong_key",
  });
  const wrong = { ...space, secret: randomBytes(32) };
  await expect(unpackFolder(wrong, own, target())).rejects.toMatchObject({ reason: "missing" });
  expectNothingLeft();
});

test("objects have neither contents nor their digests in them, and names are those of one space", async () => {
  const other = { store: await place.store("o/b/"), secret: randomBytes(32) };
  const there = await packFolder(other, newKey(), { dir, files: FILES });
  expect(there.chunks.filter((name) => packed.chunks.includes(name))).toEqual([]);
  for (const name of [...packed.chunks, packed.contents]) {
    const bytes = await space.store.get(name, 2 * WINDOW);
    for (const known of ["what was said", "window_bytes", digestOf(Buffer.alloc(WINDOW, "what was said "))])
      expect(bytes.includes(known)).toBe(false);
  }
});

test("an archive above a base is refused without it, with another one, and without the base's file", async () => {
  const base = { dir, id: "b1" };
  const above = await place.folder({
    mem: { bytes: 9 * WINDOW, parts: [{ at: 0, content: Buffer.from("x") }] },
  });
  packed = await packFolder(space, own, { dir: above, files: ["mem"], base });
  const wrong = { reason: "wrong_base" };
  await expect(unpack()).rejects.toMatchObject(wrong);
  await expect(unpack({ base: { ...base, id: "b2" } })).rejects.toMatchObject(wrong);
  await rename(path.join(dir, "mem"), path.join(dir, "gone"));
  await expect(unpack({ base })).rejects.toMatchObject(wrong);
  await rename(path.join(dir, "gone"), path.join(dir, "mem"));
  expect(await readFolder(await unpack({ base }))).toEqual(await readFolder(above));
});

test("a store that fails ends both directions with its error, and leaves nothing", async () => {
  const failure = new Error("no answer");
  space.store.changed = () => Promise.reject(failure);
  await expect(unpack()).rejects.toBe(failure);
  await expect(readBack(space, own, packed.contents)).rejects.toBe(failure);
  space.store.onPut = () => Promise.reject(failure);
  await writeFile(path.join(dir, "mem"), randomBytes(4 * WINDOW));
  await expect(packFolder(space, own, { dir, files: FILES })).rejects.toBe(failure);
  expectNothingLeft();
});

test("an aborted unpacking ends with its reason, and leaves nothing", async () => {
  const abort = new AbortController();
  const reason = new Error("no longer wanted");
  const onProgress = () => abort.abort(reason);
  await expect(unpack({ signal: abort.signal, onProgress })).rejects.toBe(reason);
  await expect(unpack({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  expectNothingLeft();
});

test("a folder that its caller refuses does not appear, and one that is there stays", async () => {
  const target = place.path();
  const at = { contents: packed.contents, dir: target };
  const beforeVisible = async (partial: string) => {
    expect(existsSync(target)).toBe(false);
    expect(await readFolder(partial)).toEqual(await readFolder(dir));
    throw new Error("not this one");
  };
  await expect(unpackFolder(space, own, at, { beforeVisible })).rejects.toThrow("not this one");
  expectNothingLeft();
  const there = await unpack();
  const again = unpackFolder(space, own, { contents: packed.contents, dir: there });
  await expect(again).rejects.toThrow("is there already");
  expect(await readFolder(there)).toEqual(await readFolder(dir));
  expect(await removePartial(place.dir)).toEqual([]);
});

test("a file that changes while it is packed, and one that is not regular, are refused", async () => {
  space.store.onPut = () => writeFile(path.join(dir, "mem"), randomBytes(10));
  await writeFile(path.join(dir, "mem"), randomBytes(WINDOW));
  const before = (await Array.fromAsync(space.store.names())).length;
  await expect(packFolder(space, own, { dir, files: ["mem"] })).rejects.toThrow(
    "has changed while it was read",
  );
  expect((await Array.fromAsync(space.store.names())).length).toBe(before + 1);
  await expect(packFolder(space, own, { dir: place.dir, files: [path.basename(dir)] })).rejects.toThrow(
    "is not a regular file",
  );
  for (const name of ["../mem", "", ".", "a/b", ".hidden"])
    await expect(packFolder(space, own, { dir, files: [name] })).rejects.toThrow("no name of a file");
  expect((await stat(dir)).isDirectory()).toBe(true);
});
