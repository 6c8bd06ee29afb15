import { randomBytes } from "node:crypto";
import { type S3World, startS3World } from "@vivarium/objects/test-support/s3-world";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let world: S3World;
let control: Control;
beforeAll(async () => {
  world = await startS3World();
  control = await startControl({ objects: { s3: world.settings("here/") } });
});
afterAll(async () => {
  await control.close();
  await world[Symbol.asyncDispose]();
});

const objects = async () =>
  ((await world.s3.listObjectsV2({ Bucket: world.bucket })).Contents ?? []).map(({ Key = "" }) => Key);

test("files are kept in a bucket, sealed, also between lost and refused requests, and go with the artifact", async () => {
  const id = await control.createLive();
  const content = `hunter2 ${randomBytes(5_000).toString("hex")}`;
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "out/a", content } });
  let asked = 0;
  world.proxy.faultOf = (_, { headers }) => {
    if (!String(headers["amz-sdk-request"]).startsWith("attempt=1")) return undefined;
    return asked++ % 2 === 0 ? { kind: "lost" } : { kind: "refused", status: 503, code: "SlowDown" };
  };
  const { id: aid } = (await control.ask(`POST /v1/sessions/${id}/artifacts`, { body: { paths: ["out"] } }))
    .body;
  const { files } = await eventually(async () => {
    const { body } = await control.ask(`GET /v1/artifacts/${aid}`);
    if (body.status !== "ready") throw new Error(JSON.stringify(body));
    return body;
  }, 30_000);
  const { pathname, search } = new URL(files[0].url);
  expect((await control.ask(`GET ${pathname}${search}`, { key: null })).text).toBe(content);
  expect(asked).toBeGreaterThan(1);
  world.proxy.faultOf = () => undefined;
  const kept = await objects();
  expect(kept).toHaveLength(1);
  expect(kept[0]).toContain(`/artifacts/${aid}/`);
  expect(kept[0]).toMatch(/^here\//);
  const { Body } = await world.s3.getObject({ Bucket: world.bucket, Key: kept[0] });
  expect(Buffer.from((await Body?.transformToByteArray()) ?? []).includes("hunter2")).toBe(false);
  await control.ask(`DELETE /v1/artifacts/${aid}`);
  await eventually(async () => expect(await objects()).toEqual([]));
});
