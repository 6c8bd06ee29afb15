/** Imports of layouts that sessions have written: whose they are, what wakes for them, and what ends them. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BuildFailed } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onBuild = () => {};
  await control.destroyAll();
  for (const table of ["templates", "template_builds"]) await control.sql.query(`delete from ${table}`);
  await eventually(() => expect(control.node.builds.size).toBe(0));
});
afterAll(() => control.close());

const importLayout = (session_id: string, change: object = {}, key = control.key) =>
  control.ask("POST /v1/templates", {
    body: { name: "app", from_layout: { session_id, path: "image" }, ...change },
    key,
  });
const read = async () => (await control.ask("GET /v1/templates/app")).body;
const until = (status: string) =>
  eventually(async () => {
    const template = await read();
    expect(template.status, JSON.stringify(template)).toBe(status);
    return template;
  }, 60_000);
/** The next attempts begin now, and not after their pause. */
const hurry = () => control.sql.query("update template_builds set not_before = null");

/** A live session with a layout. */
async function withLayout(): Promise<string> {
  const id = await control.createLive({});
  const machine = control.node.machines.get(`${id}-1`);
  await machine?.withFiles();
  const layout = join(machine?.dir ?? "", "workspace/image");
  await mkdir(layout);
  await writeFile(join(layout, "index.json"), "{}");
  return id;
}

test("an image that a session has written is a template, which sessions start from", async () => {
  const id = await withLayout();
  const asked = await importLayout(id, { description: "built" });
  expect([asked.status, asked.body]).toEqual([
    202,
    expect.objectContaining({ name: "app", description: "built", source_image: `oci:${id}/workspace/image` }),
  ]);
  expect(await until("ready")).toMatchObject({
    version: "1",
    source_image: expect.stringMatching(new RegExp(`^oci:${id}/workspace/image@sha256:[0-9a-f]{64}$`)),
  });
  const [build] = control.node.builds.values();
  expect([build?.spec, build?.machineId, build?.credential]).toEqual([
    expect.objectContaining({ layout: "/workspace/image", reference: `oci:${id}/workspace/image` }),
    `${id}-1`,
    undefined,
  ]);
  const { entries } = (await control.ask(`GET /v1/audit?action=template.import&session_id=${id}`)).body;
  expect(entries[0]).toMatchObject({
    target: "app",
    meta: { version: "1", image: `oci:${id}/workspace/image` },
  });
  await control.ask(`DELETE /v1/sessions/${id}`);
  const made = await control.ask("POST /v1/sessions", { body: { template: "app" } });
  await control.until(made.body.session_id, "live");
});

test("a paused session is woken for it, and the build reads from the machine that it has then", async () => {
  const id = await withLayout();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.until(id, "paused");
  await importLayout(id);
  await until("ready");
  expect(control.node.machines.has(`${id}-2`)).toBe(true);
  expect([...control.node.builds.values()].map(({ machineId }) => machineId)).toEqual([`${id}-2`]);
});

test("a session that is paused while it is read is woken, and read again by the same build", async () => {
  const id = await withLayout();
  let isFirst = true;
  control.node.onBuild = async (_build, stage) => {
    if (stage !== "pull" || !isFirst) return;
    isFirst = false;
    await control.ask(`POST /v1/sessions/${id}/pause`);
    throw new BuildFailed({ word: "internal", message: "the machine is held", is_transient: true });
  };
  await importLayout(id);
  await eventually(async () => {
    await hurry();
    expect((await read()).status).toBe("ready");
  }, 60_000);
  const { rows } = await control.sql.query("select attempts from template_builds");
  expect(rows).toEqual([{ attempts: 2 }]);
});

test("a session that ends before it is read fails the import for good, with the reason", async () => {
  const id = await withLayout();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onBuild = (_build, stage) => (stage === "pull" ? promise : undefined);
  control.node.images.set("docker.io/library/debian:13", { layers: [10] });
  await control.ask("POST /v1/templates", { body: { name: "first", from_image: "debian:13" } });
  expect((await importLayout(id)).status).toBe(202);
  await control.ask(`DELETE /v1/sessions/${id}`);
  resolve();
  expect((await until("failed")).build_error).toMatch(
    /^image_not_found: the session with the image: session not found/,
  );
  expect([...control.node.builds.values()].some(({ spec }) => spec.layout !== undefined)).toBe(false);
});

test("a session without that layout fails the import for good", async () => {
  const id = await withLayout();
  await importLayout(id, { from_layout: { session_id: id, path: "elsewhere" } });
  expect((await until("failed")).build_error).toMatch(/^image_not_found: /);
});

test("a session of somebody else is not found, as one that never was", async () => {
  const id = await withLayout();
  const foreign = await control.addKey();
  const projectId = `prj_${randomId()}`;
  const { org_id: orgId } = (await control.ask("GET /v1/org")).body;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, $1)", [projectId, orgId]);
  const bound = await control.addKey({ orgId, scopedProjectId: projectId });
  const never = await importLayout(randomId());
  expect([never.status, never.body.code]).toEqual([404, "not_found"]);
  for (const key of [foreign, bound]) {
    const refused = await importLayout(id, {}, key);
    expect([refused.status, refused.body]).toEqual([never.status, never.body]);
  }
  expect((await importLayout(id)).status).toBe(202);
  await until("ready");
});

test.each<[string, object, string]>([
  ["with an image, too", { from_image: "debian:13" }, "from_layout"],
  ["outside of the workspace", { from_layout: { session_id: "a", path: "/etc" } }, "from_layout.path"],
  ["that climbs out", { from_layout: { session_id: "a", path: "image/../../etc" } }, "from_layout.path"],
  ["without a path", { from_layout: { session_id: "a" } }, "from_layout.path"],
  ["without a session", { from_layout: { path: "image" } }, "from_layout.session_id"],
  ["with a long path", { from_layout: { session_id: "a", path: "a/".repeat(600) } }, "from_layout.path"],
  ["that is nothing", { from_layout: null }, "from_image"],
])("a layout %s is refused", async (_what, change, field) => {
  const refused = await importLayout("a", change);
  expect([refused.status, refused.body.code]).toEqual([400, "validation"]);
  expect(refused.body.error).toContain(`${field}: `);
});
