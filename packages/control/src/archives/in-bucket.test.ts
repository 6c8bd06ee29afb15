/** Archives in a bucket whose server loses answers and refuses requests. */
import { FakeNode } from "@vivarium/contract/test-support/node";
import { type S3World, startS3World } from "@vivarium/objects/test-support/s3-world";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";

const WITHIN_MS = 60_000;
let world: S3World;
let control: Control;
beforeAll(async () => {
  world = await startS3World();
  control = await startControl({ objects: { s3: world.settings("here/") }, hasArchives: true });
});
afterAll(async () => {
  await control.close();
  await world[Symbol.asyncDispose]();
});

test("a state is stored in a bucket and fetched from it, between lost and refused requests", async () => {
  const id = await control.createLive();
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content: "from a bucket" } });
  let asked = 0;
  world.proxy.faultOf = (_, { headers }) => {
    if (!String(headers["amz-sdk-request"]).startsWith("attempt=1")) return undefined;
    return asked++ % 2 === 0 ? { kind: "lost" } : { kind: "refused", status: 500, code: "InternalError" };
  };
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await eventually(async () => {
    const { body } = await control.ask(`GET /v1/sessions/${id}`);
    expect(body.archive).toMatchObject({ status: "complete" });
  }, WITHIN_MS);
  expect(asked).toBeGreaterThan(1);
  const node = new FakeNode({ isScripted: true });
  await node.listen();
  const settings = { ...control.settings, nodeSocket: node.socketPath };
  const app = await createApp(settings, silentLog);
  const other = new Control({ app, node, key: control.key, sql: control.sql, settings });
  const read = await other.ask(`GET /v1/sessions/${id}/files?path=content`);
  expect([read.status, read.text]).toEqual([200, expect.stringContaining("from a bucket")]);
  await app.close();
  await node.close();
});

test("while the store refuses everything, a wake from it is refused as well, and changes nothing", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await eventually(async () => {
    const { body } = await control.ask(`GET /v1/sessions/${id}`);
    expect(body.archive).toMatchObject({ status: "complete" });
  }, WITHIN_MS);
  control.node.snapshots.clear();
  world.proxy.faultOf = () => ({ kind: "refused", status: 500, code: "InternalError" });
  const answer = await control.ask(`POST /v1/sessions/${id}/resume`);
  world.proxy.faultOf = () => undefined;
  expect(answer).toMatchObject({ status: 503, body: { code: "unavailable" } });
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
  expect((await control.ask(`POST /v1/sessions/${id}/resume`)).body).toMatchObject({ state: "live" });
});
