/** Deaths of control at every point of an import: the next process finishes it, and the node has nothing that no row names. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { killAt, killSweepingAt, withMortal } from "../../test-support/mortal-control.ts";

const LONG_MS = 600_000;
const BODY = { name: "deb", from_image: "debian:13" };
/** Serves requests, and does no work in the background. */
let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
});
afterEach(async () => {
  control.node.onBuild = () => {};
  await control.ask("DELETE /v1/templates/deb");
  control.node.builds.clear();
});
afterAll(() => control.close());

const read = async () => (await control.ask("GET /v1/templates/deb")).body;
const attempts = async () =>
  (await control.sql.query("select attempts from template_builds")).rows.map((row) => row.attempts);

/** The jobs and claims of dead processes lapse now, and not with their time. */
async function forgetDead(): Promise<void> {
  await control.sql.query(
    `update vivarium_jobs.job set heartbeat_on = now() - interval '1 hour', start_after = now()
      where name = 'template_builds' and state in ('active', 'retry')`,
  );
  await control.sql.query("update template_builds set claimed_until = now(), not_before = null");
}

/** Lets a process that does not die do the work, until `check` passes. */
async function finishOn(check: () => Promise<void> | void): Promise<void> {
  await withMortal(control, "none", () => eventually(check, 120_000));
}

async function finish(status: string): Promise<void> {
  await finishOn(async () => {
    await forgetDead();
    expect((await read()).status).toBe(status);
  });
}

test("an import whose request died before its job was added is done", { timeout: LONG_MS }, async () => {
  control.node.images.set("docker.io/library/debian:13", { layers: [10] });
  await killAt(control, "template_import.commit", "POST /v1/templates", BODY);
  expect(await read()).toMatchObject({ status: "queued", queue_position: 1 });
  await finish("ready");
});

test("an import that is cut off at any point is finished, in one build of the node", {
  timeout: LONG_MS,
}, async () => {
  control.node.images.set("docker.io/library/debian:13", { layers: [10] });
  expect((await control.ask("POST /v1/templates", { body: BODY })).status).toBe(202);
  await killSweepingAt(control, "build.claimed");
  expect(await attempts()).toEqual([0]);
  await forgetDead();
  await killSweepingAt(control, "build.attempt");
  expect(control.node.builds.size).toBe(0);
  await forgetDead();
  const { promise: isFollowed, resolve: proceed } = Promise.withResolvers<void>();
  control.node.onBuild = () => isFollowed;
  await killSweepingAt(control, "build.begun");
  expect(await attempts()).toEqual([2]);
  await forgetDead();
  await killSweepingAt(control, "build.followed");
  proceed();
  await forgetDead();
  // The node went further meanwhile: the next process follows the same build.
  await killSweepingAt(control, "build.ended");
  expect((await read()).status).toBe("building");
  await forgetDead();
  await killSweepingAt(control, "build.kept");
  expect(await attempts()).toEqual([2]);
  expect(await read()).toMatchObject({ status: "ready", versions: [expect.any(String)] });
  expect(control.node.builds.size).toBe(1);
  await killAt(control, "template_delete.commit", "DELETE /v1/templates/deb");
  expect((await control.ask("GET /v1/templates/deb")).status).toBe(404);
  await finishOn(() => expect(control.node.builds.size).toBe(0));
});

test("an import that fails is over after a death, and nothing of it stays on the node", {
  timeout: LONG_MS,
}, async () => {
  control.node.images.clear();
  expect((await control.ask("POST /v1/templates", { body: BODY })).status).toBe(202);
  await killSweepingAt(control, "build.failed");
  expect(await read()).toMatchObject({
    status: "failed",
    build_error: expect.stringMatching(/^image_not_found: /),
  });
  expect(control.node.builds.size).toBe(1);
  await finishOn(() => expect(control.node.builds.size).toBe(0));
  expect((await read()).status).toBe("failed");
});

test("an import of a session's layout that is cut off is read from the session again", {
  timeout: LONG_MS,
}, async () => {
  const id = await control.createLive({});
  const machine = control.node.machines.get(`${id}-1`);
  await machine?.withFiles();
  await mkdir(join(machine?.dir ?? "", "workspace/image"));
  await writeFile(join(machine?.dir ?? "", "workspace/image/index.json"), "{}");
  const body = { name: "deb", from_layout: { session_id: id, path: "image" } };
  expect((await control.ask("POST /v1/templates", { body })).status).toBe(202);
  await killSweepingAt(control, "build.attempt");
  await forgetDead();
  await killSweepingAt(control, "build.begun");
  // The node's daemon dies as well, and has forgotten which machine it was.
  await control.node.restart();
  await forgetDead();
  await finish("ready");
  expect(control.node.builds.size).toBe(1);
  await control.ask(`DELETE /v1/sessions/${id}`);
});

test("three deaths before anything has begun end an import", { timeout: LONG_MS }, async () => {
  control.node.images.set("docker.io/library/debian:13", { layers: [10] });
  expect((await control.ask("POST /v1/templates", { body: BODY })).status).toBe(202);
  for (let death = 0; death < 3; death++) {
    await killSweepingAt(control, "build.attempt");
    await forgetDead();
  }
  await finish("failed");
  expect((await read()).build_error).toBe("internal: the build was cut off 3 times");
});
