import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { BuilderDeps } from "./builder.ts";
import { unpackImage } from "./unpack-image.ts";

/** Empty, so that an image which gets as far as a machine fails. */
const deps = {} as BuilderDeps;
const layer = {
  digest: "sha256:1",
  diffId: "sha256:2",
  compression: "none" as const,
  sizeBytes: 1,
};

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "build-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

it("refuses an image without layers before it makes any disk", async () => {
  const unpacked = unpackImage(deps, { folder, layers: [] });
  await expect(unpacked).rejects.toMatchObject({ code: "image_invalid" });
  expect(await readdir(folder)).toEqual([]);
});

it("throws away what an attempt before it left, and leaves nothing of its own when it fails", async () => {
  await mkdir(path.join(folder, "unpack/run"), { recursive: true });
  await writeFile(path.join(folder, "unpack/target.raw"), "of a daemon that was killed");
  await writeFile(path.join(folder, "root.ext4"), "finished, and not known to be");
  await writeFile(path.join(folder, "layer"), "pulled");
  const missing = { ...layer, path: path.join(folder, "missing") };
  const unpacked = unpackImage(deps, { folder, layers: [missing] });
  await expect(unpacked).rejects.toMatchObject({ name: "Error", code: "internal" });
  expect(await readdir(folder)).toEqual(["layer"]);
});

it("says why it was aborted", async () => {
  const file = path.join(folder, "layer");
  await writeFile(file, "x");
  const reason = new Error("the build was deleted");
  const layers = [{ ...layer, path: file }];
  const unpacked = unpackImage(deps, { folder, layers, signal: AbortSignal.abort(reason) });
  await expect(unpacked).rejects.toBe(reason);
  expect(await readdir(folder)).toEqual(["layer"]);
});
