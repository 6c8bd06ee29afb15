import { mkdir, open, readdir, readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { buildsOf, pinSnapshot, placeSnapshot } from "./saved-state.ts";

inOwnDirectories();

const HOLE_BYTES = 1024 * 1024;
let source: string;
beforeEach(async () => {
  source = path.join(dir, "pool/s/pau_1");
  await makeSnapshot(source);
});

async function makeSnapshot(target: string): Promise<void> {
  await mkdir(target, { recursive: true });
  await writeFile(path.join(target, "mem"), "memory");
  const base = path.join(target, "base.raw");
  await using handle = await open(base, "wx");
  await handle.write("disk", HOLE_BYTES);
  await handle.sync();
  await utimes(base, 1_700_000_000.25, 1_700_000_000.25);
  const { size, mtimeNs, blocks } = await stat(base, { bigint: true });
  const files = { "base.raw": { bytes: Number(size), mtime: String(mtimeNs), blocks: Number(blocks) } };
  const facts = { qemu_build: "0123456789abcdef0123", template: "base", version: "v1", files };
  await writeFile(path.join(target, "manifest.json"), JSON.stringify(facts));
}

test("a kept snapshot has all files, takes no space of its own, and outlives its deletion", async () => {
  const kept = path.join(dir, "kept");
  expect(await pinSnapshot(source, kept)).toBe(true);
  expect((await stat(path.join(kept, "mem"))).nlink).toBe(2);
  await rename(source, `${source}.removed`);
  await rm(`${source}.removed`, { recursive: true });
  expect(await readFile(path.join(kept, "mem"), "utf8")).toBe("memory");
  expect(await buildsOf([kept])).toEqual(["0123456789abcdef"]);
});

test("a saved state that is gone, or not published, is not kept, and leaves nothing", async () => {
  expect(await pinSnapshot(path.join(dir, "none"), path.join(dir, "kept"))).toBe(false);
  await rm(path.join(source, "manifest.json"));
  expect(await pinSnapshot(source, path.join(dir, "kept"))).toBe(false);
  expect(await readdir(dir)).not.toContain("kept");
});

test("a placed snapshot has its template's disk as the node expects it: time, size and holes", async () => {
  const unpacked = path.join(dir, "unpacked");
  await makeSnapshot(unpacked);
  const base = path.join(unpacked, "base.raw");
  // As an unpacker leaves it that knows nothing of holes.
  const whole = await readFile(base);
  await writeFile(base, whole);
  const target = path.join(dir, "other/s/pau_1");
  await placeSnapshot(unpacked, target, path.join(dir, "images"));
  const expected = JSON.parse(await readFile(path.join(target, "manifest.json"), "utf8")).files["base.raw"];
  const found = await stat(path.join(target, "base.raw"), { bigint: true });
  expect(String(found.mtimeNs)).toBe(expected.mtime);
  expect(Number(found.blocks)).toBeLessThanOrEqual(expected.blocks);
  expect(await readFile(path.join(target, "base.raw"))).toEqual(whole);
});

test("a disk that takes more blocks here than where it was saved is described as it is here", async () => {
  const unpacked = path.join(dir, "unpacked");
  await makeSnapshot(unpacked);
  const manifest = path.join(unpacked, "manifest.json");
  const before = JSON.parse(await readFile(manifest, "utf8"));
  await writeFile(
    manifest,
    JSON.stringify({ ...before, files: { "base.raw": { ...before.files["base.raw"], blocks: 1 } } }),
  );
  const target = path.join(dir, "other/s/pau_1");
  await placeSnapshot(unpacked, target, path.join(dir, "images"));
  expect(JSON.parse(await readFile(path.join(target, "manifest.json"), "utf8"))).toEqual({
    ...before,
    files: {
      "base.raw": { ...before.files["base.raw"], blocks: (await stat(path.join(target, "base.raw"))).blocks },
    },
  });
});

test("where the template is here, its disk is used; and a snapshot that is here already is left alone", async () => {
  const unpacked = path.join(dir, "unpacked");
  await makeSnapshot(unpacked);
  const template = path.join(dir, "images/templates/base/v1");
  await mkdir(template, { recursive: true });
  await rename(path.join(source, "base.raw"), path.join(template, "root.ext4"));
  const target = path.join(dir, "other/s/pau_1");
  await placeSnapshot(unpacked, target, path.join(dir, "images"));
  const inodeOf = async (file: string) => (await stat(file)).ino;
  expect(await inodeOf(path.join(target, "base.raw"))).toBe(await inodeOf(path.join(template, "root.ext4")));
  await makeSnapshot(unpacked);
  await writeFile(path.join(unpacked, "mem"), "other");
  await placeSnapshot(unpacked, target, path.join(dir, "images"));
  expect(await readFile(path.join(target, "mem"), "utf8")).toBe("memory");
});

test("a snapshot that names a template elsewhere is not placed", async () => {
  const unpacked = path.join(dir, "unpacked");
  await makeSnapshot(unpacked);
  const manifest = path.join(unpacked, "manifest.json");
  const facts = JSON.parse(await readFile(manifest, "utf8"));
  await writeFile(manifest, JSON.stringify({ ...facts, template: "../../elsewhere" }));
  const target = path.join(dir, "other/s/pau_1");
  const placed = placeSnapshot(unpacked, target, path.join(dir, "images"));
  await expect(placed).rejects.toThrow('names a template "../../elsewhere"');
  expect(await readdir(dir)).not.toContain("other");
});
