import { copyFile, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { describeAgain } from "./describe-again.ts";
import { publishManifest, readManifest, verifyLoadable } from "./manifest.ts";
import { SumsThread } from "./sums-thread.ts";

const sums = new SumsThread({ log: createLog("test", "silent") });
afterAll(() => sums.close());

let root: string;
/** Copies of the files of a snapshot, with other times than it had. */
let copy: string;

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), "describe-again-"));
  const { dir, manifest } = await makeLoadable(path.join(root, "source"));
  await publishManifest(dir, manifest);
  copy = path.join(root, "copy");
  const { dir: target } = await makeLoadable(copy);
  for (const name of await readdir(dir)) await copyFile(path.join(dir, name), path.join(target, name));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const load = async () =>
  await verifyLoadable({ qemu: QEMU, sums }, { dir: copy, manifest: await readManifest(copy) });

test("copies of a snapshot's files can be loaded once they are described again, and not before", async () => {
  const before = await readManifest(copy);
  await expect(load()).rejects.toThrow("base.raw is damaged");
  const again = await describeAgain(copy, sums);
  await load();
  expect(await readManifest(copy)).toEqual(again);
  expect({ ...again, files: {} }).toEqual({ ...before, files: {} });
  expect(again.files.state).toMatchObject({ sha256: before.files.state?.sha256 });
});

test.for(["state", "mem", "mem.sums", "disk.qcow2", "layer.qcow2"])(
  "nothing is described again with another %s",
  async (name) => {
    const before = await readManifest(copy);
    const content = await readFile(path.join(copy, name));
    content[0] = (content[0] ?? 0) ^ 1;
    await writeFile(path.join(copy, name), content);
    await expect(describeAgain(copy, sums)).rejects.toThrow(/is not the file that was saved|is damaged/);
    expect(await readManifest(copy)).toEqual(before);
  },
);

test("a base disk of another length is refused", async () => {
  await writeFile(path.join(copy, "base.raw"), "");
  await expect(describeAgain(copy, sums)).rejects.toThrow("base.raw is not the file that was saved");
});
