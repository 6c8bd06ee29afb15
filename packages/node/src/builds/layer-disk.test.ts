import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { LAYER_ALIGNMENT, LAYER_TABLE_BYTES, type LayerTable } from "@vivarium/contract/guest";
import { afterEach, beforeEach, expect, it } from "vitest";
import { type LayerFile, makeLayerDisk } from "./layer-disk.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "a layer disk-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

async function layer(
  name: string,
  content: string,
  compression: LayerFile["compression"] = "none",
): Promise<LayerFile> {
  const file = path.join(dir, name);
  await writeFile(file, content);
  const sizeBytes = content.length;
  return { path: file, digest: `sha256:${name}`, diffId: `sha256:of-${name}`, compression, sizeBytes };
}

async function readDisk(file: string): Promise<{ table: LayerTable; bytes: Buffer }> {
  const bytes = await readFile(file);
  const end = bytes.indexOf(0);
  return { table: JSON.parse(bytes.subarray(0, end).toString()) as LayerTable, bytes };
}

it("has a table and each layer whole behind it, at a multiple of the alignment", async () => {
  const contents = ["first".repeat(2000), "second", "third".repeat(10)];
  const kinds = ["none", "gzip", "zstd"] as const;
  const layers = await Promise.all(contents.map((text, at) => layer(`layer ${at}`, text, kinds[at])));
  const file = path.join(dir, "disk");
  await makeLayerDisk(file, layers, 'A="1"\n');
  const { table, bytes } = await readDisk(file);
  expect(table.environment).toBe('A="1"\n');
  expect(table.layers.map(({ compression }) => compression)).toEqual(kinds);
  expect(table.layers.map(({ diff_id }) => diff_id)).toEqual(layers.map(({ diffId }) => diffId));
  for (const [at, row] of table.layers.entries()) {
    expect(row.offset % LAYER_ALIGNMENT).toBe(0);
    expect(row.offset).toBeGreaterThanOrEqual(LAYER_TABLE_BYTES);
    expect(bytes.subarray(row.offset, row.offset + row.bytes).toString()).toBe(contents[at]);
  }
  expect(bytes.length % LAYER_ALIGNMENT).toBe(0);
});

it("has a file once that is two layers", async () => {
  const one = await layer("one", "x".repeat(10_000));
  const file = path.join(dir, "disk");
  await makeLayerDisk(file, [one, { ...one, diffId: "sha256:other" }], "");
  const { table } = await readDisk(file);
  expect(new Set(table.layers.map(({ offset }) => offset)).size).toBe(1);
  expect((await stat(file)).size).toBe(LAYER_TABLE_BYTES + 3 * LAYER_ALIGNMENT);
});

it("refuses a layer whose file has another size, and a table that does not fit", async () => {
  const one = await layer("one", "x");
  const file = path.join(dir, "disk");
  const wrong = makeLayerDisk(file, [{ ...one, sizeBytes: 2 }], "");
  await expect(wrong).rejects.toMatchObject({ code: "internal" });
  const many = Array.from({ length: 10_000 }, () => ({ ...one, diffId: "d".repeat(100) }));
  const tooMany = makeLayerDisk(path.join(dir, "other"), many, "");
  await expect(tooMany).rejects.toMatchObject({ code: "image_too_large" });
});
