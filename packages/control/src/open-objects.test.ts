import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readConfig } from "./config.ts";
import { openLocalObjects, openObjects } from "./open-objects.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "objects-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const BUCKET = { VIV_OBJECTS: "s3://bucket", AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b" };

test("the warm tier is in the object store if that is a directory", async () => {
  const objects = await openObjects({ dir });
  expect(await openLocalObjects(objects, path.join(dir, "other"))).toBe(objects);
  await objects.close();
});

test("beside a bucket it is in the directory of before, if there is one", async () => {
  const config = readConfig({ DATABASE_URL: "postgres://db", VIV_DATA_DIR: dir, ...BUCKET });
  const bucket = await openObjects(config.objects);
  expect(await openLocalObjects(bucket, config.localObjectsDir)).toBe(bucket);
  const before = await DirectoryStore.open(path.join(dir, "objects"));
  await before.put("org_a/archives/x/y", Buffer.from("packed"));
  const local = await openLocalObjects(bucket, config.localObjectsDir);
  expect((await local.head("org_a/archives/x/y"))?.sizeBytes).toBe(6);
  for (const store of [bucket, before, local]) await store.close();
});
