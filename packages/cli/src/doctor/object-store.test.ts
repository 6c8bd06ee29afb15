import { type S3World, startS3World } from "@vivarium/objects/test-support/s3-world";
import { afterAll, beforeAll, expect, test } from "vitest";
import { checkObjectStore } from "./object-store.ts";

let world: S3World;
beforeAll(async () => {
  world = await startS3World();
});
afterAll(() => world[Symbol.asyncDispose]());

test("a directory is not tried, and a bucket that works is ok", async () => {
  expect(await checkObjectStore({})).toMatchObject({ status: "ok", found: "a directory of this host" });
  expect(await checkObjectStore(world.environment)).toMatchObject({ status: "ok" });
});

test("a bucket that does not work is a warning that says why, without the credential", async () => {
  const wrong = { ...world.environment, AWS_SECRET_ACCESS_KEY: "geheim/geheim" };
  const finding = await checkObjectStore(wrong);
  expect(finding).toMatchObject({
    status: "warn",
    found: expect.stringContaining("SignatureDoesNotMatch"),
    cost: "no artifact is captured or read",
  });
  expect(JSON.stringify(finding)).not.toContain("geheim");
  expect(await checkObjectStore({ ...world.environment, VIV_OBJECTS: "s3://no-such-bucket" })).toMatchObject({
    status: "warn",
    found: expect.stringContaining("Make the bucket"),
  });
});
