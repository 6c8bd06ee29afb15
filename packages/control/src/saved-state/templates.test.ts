import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onSnapshot = () => {};
  await control.destroyAll();
  await control.sql.query("delete from templates");
  await control.sql.query("delete from template_names");
  control.node.snapshots.clear();
  control.node.info = { ...control.node.info, damaged_snapshots: [] };
});
afterAll(() => control.close());

const save = (id: string, body: object, query = "") =>
  control.ask(`POST /v1/sessions/${id}/templates${query}`, { body });
const create = (body: object) => control.ask("POST /v1/sessions", { body });
const list = async () => (await control.ask("GET /v1/templates")).body.templates;
const startedFrom = (id: string) => control.node.machines.get(`${id}-1`)?.spec;
const kept = () => [...control.node.snapshots.keys()].filter((id) => id.startsWith("tpl_"));
const opOf = async (id: string) =>
  (await control.sql.query("select op from sessions where id = $1", [id])).rows[0].op;
const OFFICIAL = {
  name: "base",
  kind: "official",
  status: "ready",
  versions: [],
  size: "small",
  memory: true,
};

const offer = (baselines: Control["node"]["info"]["baselines"]) => control.offer({ baselines });

test("a live session is saved and stays live", async () => {
  const id = await control.createLive({ size: "medium" });
  const { status, body } = await save(id, { name: "tools", description: "with tools", ignored: 1 });
  expect(status).toBe(200);
  expect(body).toEqual({
    name: "tools",
    kind: "user",
    description: "with tools",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    status: "ready",
    version: "1",
    versions: ["1"],
    size: "medium",
    memory: true,
  });
  expect(control.node.snapshots.get(kept()[0] ?? "")?.spec).toEqual({
    machine_id: `${id}-1`,
    after: "continue",
  });
  expect((await control.exec(id)).status).toBe(200);
  expect(await list()).toEqual([OFFICIAL, body]);
  expect((await control.ask("GET /v1/templates/tools")).body).toEqual(body);
});

test("a paused session is saved and stays paused", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [id]);
  expect((await save(id, { name: "tools" })).body.status).toBe("ready");
  expect(control.node.snapshots.get(kept()[0] ?? "")?.spec).toEqual({ snapshot_id: rows[0].snapshot_id });
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("paused");
});

test("a save under an existing name makes another version, and the former one stays", async () => {
  const id = await control.createLive();
  await save(id, { name: "tools", description: "one" });
  const second = await save(id, { name: "tools" });
  expect(second.body).toMatchObject({ version: "2", versions: ["2", "1"] });
  expect(second.body).not.toHaveProperty("description");
  const first = await control.ask("GET /v1/templates/tools@1");
  expect(first.body).toMatchObject({ description: "one", version: "1", versions: ["2", "1"] });
  expect(await list()).toHaveLength(2);
  const snapshots = kept();
  const [newest, pinned] = [
    await control.createLive({ template: "tools" }),
    await control.createLive({ template: "tools@1" }),
  ];
  expect(startedFrom(newest)?.snapshot_id).toBe(snapshots[1]);
  expect(startedFrom(pinned)?.snapshot_id).toBe(snapshots[0]);
});

test("simultaneous saves under one name make separate versions", async () => {
  const ids = await Promise.all(Array.from({ length: 4 }, () => control.createLive()));
  const answers = await Promise.all(ids.map((id) => save(id, { name: "race" })));
  expect(answers.map(({ body }) => body.version).sort()).toEqual(["1", "2", "3", "4"]);
});

test("the number of a deleted version is never used again", async () => {
  const id = await control.createLive();
  await save(id, { name: "tools" });
  await save(id, { name: "tools" });
  expect((await control.ask("DELETE /v1/templates/tools@2")).status).toBe(204);
  expect((await control.ask("GET /v1/templates/tools")).body).toMatchObject({
    version: "1",
    versions: ["1"],
  });
  expect((await create({ template: "tools@2" })).status).toBe(404);
  expect((await save(id, { name: "tools" })).body.version).toBe("3");
  expect((await control.ask("DELETE /v1/templates/tools")).status).toBe(204);
  expect(kept()).toEqual([]);
  expect((await control.ask("GET /v1/templates/tools")).status).toBe(404);
  expect((await save(id, { name: "tools" })).body.versions).toEqual(["4"]);
});

test("sessions from a template stay when it is deleted, even those that are starting", async () => {
  const id = await control.createLive();
  await save(id, { name: "tools" });
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const starting = await control.create({ template: "tools" });
  const [snapshot] = kept();
  expect((await control.ask("DELETE /v1/templates/tools")).status).toBe(204);
  expect(kept()).toEqual([snapshot]);
  resolve();
  await control.until(starting, "live");
});

describe("a session of a template", () => {
  test("has its size and no_sudo, and nothing else of the session that was saved", async () => {
    const id = await control.createLive({
      ...{ size: "medium", no_sudo: true, env: { A: "1" }, labels: { a: "b" } },
      ...{ name: "source", external_id: "ext" },
    });
    await save(id, { name: "tools" });
    const made = await control.createLive({ template: "tools", labels: { c: "d" } });
    const { body } = await control.ask(`GET /v1/sessions/${made}`);
    expect(body).toMatchObject({ template: "tools", size: "medium", no_sudo: true, labels: { c: "d" } });
    for (const field of ["env", "name", "external_id", "parent_session_id"]) {
      expect(body).not.toHaveProperty(field);
    }
    expect(startedFrom(made)).toEqual({
      network: { generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] },
      template: "base",
      size: "medium",
      hostname: made,
      no_sudo: true,
      snapshot_id: kept()[0],
    });
  });

  test("may name the size, but no other", async () => {
    const id = await control.createLive({ size: "medium" });
    await save(id, { name: "tools" });
    expect((await create({ template: "tools", size: "medium" })).status).toBe(200);
    const answer = await create({ template: "tools", size: "small" });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toBe(
      'size: must be "medium", the size of the template, or be left out, got "small"',
    );
  });

  test("can be saved again, forked and woken like any other", async () => {
    const id = await control.createLive();
    await save(id, { name: "tools" });
    const made = await control.createLive({ template: "tools@1" });
    expect((await save(made, { name: "more" })).status).toBe(200);
    const nested = await control.createLive({ template: "more" });
    expect(startedFrom(nested)).toMatchObject({ template: "base" });
    const [child] = (await control.ask(`POST /v1/sessions/${made}/fork`)).body.children;
    expect((await control.ask(`GET /v1/sessions/${child}`)).body.template).toBe("tools@1");
    expect(startedFrom(child)).toMatchObject({ template: "base" });
    await control.ask(`POST /v1/sessions/${made}/pause`);
    expect((await control.exec(made)).status).toBe(200);
    expect(control.node.machines.get(`${made}-2`)?.spec).toMatchObject({ template: "base", resume: true });
  });

  test("runs code as well", async () => {
    const id = await control.createLive();
    await save(id, { name: "tools" });
    let machine = "";
    control.node.onStart = (machineId) => {
      machine = machineId;
    };
    let snapshot: string | undefined;
    control.node.onExec = (_call, output) => {
      snapshot = control.node.machines.get(machine)?.spec?.snapshot_id;
      output().exit();
    };
    const run = (template: string) =>
      control.ask("POST /v1/sessions/exec", { body: { language: "python", code: "", template } });
    expect((await run("tools")).status).toBe(200);
    expect(snapshot).toBe(kept()[0]);
    expect((await run("nothing")).status).toBe(404);
  });
});

test.each(["nothing", "tools@2", "tools@x", "tools@", "tools@1@1", "Tools", "@1", " tools", "tools@\u0007"])(
  "template = %j is not found",
  async (template) => {
    const id = await control.createLive();
    await save(id, { name: "tools" });
    const answer = await create({ template });
    expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
    expect(answer.body.error).toMatch(/^template: no template or version is called/);
    const path = `templates/${encodeURIComponent(template)}`;
    for (const verb of ["GET", "DELETE"]) {
      expect((await control.ask(`${verb} /v1/${path}`)).status).toBe(404);
    }
    expect(await list()).toHaveLength(2);
  },
);

test("a template that the node has lost is not replaced by another, and the create may be retried", async () => {
  const id = await control.createLive();
  await save(id, { name: "tools" });
  await save(id, { name: "tools" });
  control.node.snapshots.delete(kept()[1] ?? "");
  for (const template of ["tools", "tools@2"]) {
    const answer = await create({ template });
    expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
      503,
      "template_version_unavailable",
      "5",
    ]);
  }
  expect((await create({ template: "tools@1" })).status).toBe(200);
  await control.create({ name: "taken" });
  const taken = await create({ template: "tools@2", name: "taken" });
  expect([taken.status, taken.body.code]).toEqual([409, "conflict"]);

  const there = (await control.ask("GET /v1/sessions")).body.sessions.length;
  await Promise.all(Array.from({ length: 10 - there }, () => control.create()));
  const body = { language: "python", code: "", template: "tools@2" };
  for (const answer of [await create(body), await control.ask("POST /v1/sessions/exec", { body })])
    expect([answer.status, answer.body.code]).toEqual([429, "account_concurrency_exceeded"]);
});

test("a damaged template fails the first session that loads it, and later creates are refused", async () => {
  const id = await control.createLive();
  await save(id, { name: "tools" });
  await save(id, { name: "tools" });
  control.node.onStart = (_machineId, { snapshot_id: loaded }) => {
    control.node.info = { ...control.node.info, damaged_snapshots: loaded ? [loaded] : [] };
  };
  const made = await control.create({ template: "tools" });
  const failed = await control.until(made, "failed");
  expect(failed.body.status_reason).toBe("the saved state that the session starts from is damaged");
  for (const template of ["tools", "tools@2"]) {
    const answer = await create({ template });
    expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
      503,
      "template_version_unavailable",
      "5",
    ]);
    expect(answer.body.error).toMatch(/^template: the saved state of version 2 of tools is damaged/);
  }
  await control.offer({});
  const ready = { version: "1", status: "ready", versions: ["1"] };
  expect((await control.ask("GET /v1/templates/tools@1")).body).toMatchObject(ready);
  const damaged = { version: "2", status: "failed", versions: ["1"] };
  expect((await control.ask("GET /v1/templates/tools")).body).toMatchObject(damaged);
  expect((await list())[1]).toMatchObject(damaged);
  control.node.onStart = () => {};
  await control.createLive({ template: "tools@1" });
  expect((await control.ask("DELETE /v1/templates/tools@2")).status).toBe(204);
  await control.createLive({ template: "tools" });
});

describe("official templates", () => {
  afterEach(() => offer(["small", "medium", "large"].map((size) => ({ template: "base", size }))));

  test("are the node's baselines, with their versions and times", async () => {
    await offer([
      { template: "base", size: "large", version: "2026.07.10", created_at: "2026-07-10T00:00:00.000Z" },
      { template: "base", size: "medium", version: "2026.07.10", created_at: "2026-07-11T00:00:00.000Z" },
      { template: "base", size: "small", version: "2026.01.02", created_at: "2026-01-02T00:00:00.000Z" },
      { template: "ai", size: "large" },
    ]);
    const base = {
      ...OFFICIAL,
      created_at: "2026-07-10T00:00:00.000Z",
      version: "2026.07.10",
      versions: ["2026.07.10", "2026.01.02"],
      size: "medium",
    };
    expect(await list()).toEqual([{ ...OFFICIAL, name: "ai", size: "large" }, base]);
    expect((await control.ask("GET /v1/templates/base")).body).toEqual(base);
    expect((await control.ask("GET /v1/templates/base@2026.01.02")).body).toMatchObject({
      version: "2026.01.02",
      size: "small",
      created_at: "2026-01-02T00:00:00.000Z",
    });
    expect((await control.ask("GET /v1/templates/base@2025.01.01")).status).toBe(404);
  });

  test("have their versions in order of creation; without a version, the current one is used", async () => {
    const made = (version: string, day: string, isCurrent?: boolean) => ({
      ...{ template: "base", size: "small", version, created_at: `2026-07-${day}T00:00:00.000Z` },
      ...(isCurrent !== undefined && { is_current: isCurrent }),
    });
    await offer([made("1.9", "01", false), made("zulu", "02", false), made("1.10", "03", true)]);
    const base = {
      version: "1.10",
      versions: ["1.10", "zulu", "1.9"],
      created_at: "2026-07-03T00:00:00.000Z",
    };
    expect((await control.ask("GET /v1/templates/base")).body).toMatchObject(base);
    await offer([made("1.9", "01", true), made("1.10", "03", false)]);
    const older = { version: "1.9", versions: ["1.10", "1.9"], created_at: "2026-07-01T00:00:00.000Z" };
    expect((await control.ask("GET /v1/templates/base")).body).toMatchObject(older);
    // If the node marks none as current, the first one is.
    await offer([made("1.9", "01"), made("1.10", "03")]);
    expect((await control.ask("GET /v1/templates/base")).body).toMatchObject(older);
  });

  test("show their origin if the node reports it; saved templates never do", async () => {
    const origin = {
      built_at: "2026-07-10T09:30:00.000Z",
      base_image_ref: "debian/trixie",
      base_image_digest: `sha256:${"1f".repeat(32)}`,
      content_hash: `sha256:${"2e".repeat(32)}`,
      cadence: "on-demand",
      category: "base",
    };
    const older = { built_at: "2026-01-02T09:30:00.000Z" };
    await offer([
      { template: "base", size: "small", version: "2026.07.10", is_current: true, origin },
      { template: "base", size: "small", version: "2026.01.02", is_current: false, origin: older },
    ]);
    const of = async (name: string) => (await control.ask(`GET /v1/templates/${name}`)).body;
    expect(await of("base")).toMatchObject(origin);
    const { version, built_at, ...rest } = await of("base@2026.01.02");
    expect({ version, built_at }).toEqual({ version: "2026.01.02", ...older });
    const originFields = ["base_image_ref", "base_image_digest", "content_hash", "cadence", "category"];
    for (const field of originFields) expect(rest).not.toHaveProperty(field);
    await save(await control.createLive(), { name: "tools" });
    for (const field of Object.keys(origin)) expect(await of("tools")).not.toHaveProperty(field);
  });

  test("are started in the sizes of the current version, if none is named", async () => {
    await offer([
      { template: "base", size: "small", version: "2", is_current: true },
      { template: "base", size: "large", version: "1", is_current: false },
    ]);
    const none = await create({ size: "large" });
    expect([none.status, none.body.code]).toEqual([503, "size_unavailable"]);
    expect(none.body.error).toMatch(/available: small$/);
    expect((await create({ size: "large", template: "base@1" })).status).toBe(200);
  });

  test("are started in the named version, or not at all", async () => {
    await offer([
      { template: "base", size: "small", version: "2026.07.10" },
      { template: "base", size: "large", version: "2026.01.02" },
    ]);
    const id = await control.createLive({ template: "base@2026.07.10" });
    expect(startedFrom(id)?.template).toBe("base@2026.07.10");
    expect((await control.ask(`GET /v1/sessions/${id}`)).body.template).toBe("base@2026.07.10");
    const unknown = await create({ template: "base@2026.07.11" });
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
    const tooLarge = await create({ template: "base@2026.07.10", size: "large" });
    expect([tooLarge.status, tooLarge.body.code]).toEqual([503, "size_unavailable"]);
    control.node.onStart = () => {
      throw new Refusal("template_unavailable");
    };
    const gone = await control.create({ template: "base@2026.07.10" });
    expect((await control.until(gone, "failed")).body.status_reason).toMatch(/no baseline for this template/);
  });

  test("need not be base", async () => {
    await offer([
      { template: "base", size: "small" },
      { template: "ai", size: "small" },
    ]);
    const id = await control.createLive({ template: "ai" });
    expect(startedFrom(id)?.template).toBe("ai");
  });

  test("that are not set up are refused with the command that makes them, and their names are kept free", async () => {
    const refusal = [404, "not_found", expect.stringContaining("sudo ./setup --templates data")];
    for (const answer of [
      await create({ template: "data" }),
      await create({ template: "data@2026.11.28-0123abcd" }),
      await control.ask("GET /v1/templates/data"),
    ])
      expect([answer.status, answer.body.code, answer.body.error]).toEqual(refusal);
    const saved = await save(await control.createLive(), { name: "build" });
    expect([saved.status, saved.body.code]).toEqual([403, "forbidden"]);
    await offer([
      { template: "base", size: "small" },
      { template: "data", size: "small", version: "1" },
    ]);
    expect((await list()).map((one: { name: string }) => one.name)).toEqual(["base", "data"]);
    expect(startedFrom(await control.createLive({ template: "data" }))?.template).toBe("data");
  });

  test("cannot be deleted, nor their names be used", async () => {
    await offer([
      { template: "base", size: "small", version: "1" },
      { template: "ai", size: "small" },
    ]);
    const id = await control.createLive();
    for (const name of ["base", "ai"]) {
      const saved = await save(id, { name });
      expect([saved.status, saved.body.code]).toEqual([403, "forbidden"]);
      expect(saved.body.error).toMatch(/^name: .* is the name of an official template/);
      const deleted = await control.ask(`DELETE /v1/templates/${name}`);
      expect([deleted.status, deleted.body.code]).toEqual([403, "forbidden"]);
    }
    expect((await control.ask("DELETE /v1/templates/base@1")).status).toBe(403);
    expect(kept()).toEqual([]);
  });
});

test.each([
  ["name", undefined, /^name: must be a string, got nothing/],
  ["name", "", /^name: must be 1 to 63 of a-z, 0-9, dots and hyphens/],
  ["name", "a@1", /^name: must be 1 to 63/],
  ["name", ".a", /^name: must be 1 to 63/],
  ["name", "a-", /^name: must be 1 to 63/],
  ["name", "x".repeat(64), /^name: must be 1 to 63/],
  ["description", "", /^description: must be 1 to 512 characters/],
  ["description", "x".repeat(513), /^description: must be 1 to 512 characters/],
  ["description", "a\nb", /^description: must not contain control/],
])("%s = %j is refused by name", async (field, value, message) => {
  const answer = await save(randomId(), { name: "tools", [field]: value });
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});

test.each([
  ["capture_failed", 503, "session_unavailable"],
  ["disk_pressure", 503, "node_disk_pressure"],
  ["internal", 500, "internal"],
] as const)("a refusal of the node with %s leaves no orphan", async (code, status, shown) => {
  const id = await control.createLive();
  control.node.onSnapshot = () => {
    throw new Refusal(code);
  };
  const answer = await save(id, { name: "tools" });
  expect([answer.status, answer.body.code]).toEqual([status, shown]);
  expect([await list(), kept(), await opOf(id)]).toEqual([[OFFICIAL], [], null]);
  control.node.onSnapshot = () => {};
  expect((await save(id, { name: "tools" })).body.version).toBe("1");
});

test("a session in another state is not saved", async () => {
  const id = await control.createLive();
  for (const [state, status, code] of [
    ["creating", 409, "session_not_live"],
    ["failed", 409, "conflict"],
    ["lifetime_expired", 410, "session_ended"],
  ] as const) {
    await control.sql.query(
      "update sessions set state = $2, machine_released_at = now(), provision_claimed_until = now() + interval '1 hour' where id = $1",
      [id, state],
    );
    const answer = await save(id, { name: "tools" });
    expect([state, answer.status, answer.body.code]).toEqual([state, status, code]);
  }
});

test("a destroy during the request ends it, and no template remains", async () => {
  const id = await control.createLive();
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onSnapshot = () => promise;
  const asked = save(id, { name: "tools" });
  await eventually(async () => expect(await opOf(id)).toBe("save_template"));
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  resolve();
  const answer = await asked;
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  expect(await list()).toEqual([OFFICIAL]);
});

test("organisations do not share names", async () => {
  const key = await control.addKey();
  const theirs = await control.createLive({}, key);
  await control.ask(`POST /v1/sessions/${theirs}/templates`, { key, body: { name: "tools" } });
  expect(await list()).toEqual([OFFICIAL]);
  expect((await create({ template: "tools" })).status).toBe(404);
  const mine = await control.createLive();
  expect((await save(mine, { name: "tools" })).body.version).toBe("1");
});

test("a key of one project sees, uses and deletes only that project's versions", async () => {
  const { rows } = await control.sql.query("select org_id from projects limit 1");
  const [{ org_id: orgId }] = rows;
  const projectId = `prj_${randomId()}`;
  await control.sql.query("insert into projects (id, org_id, name) values ($1, $2, $3)", [
    projectId,
    orgId,
    randomId(),
  ]);
  const key = await control.addKey({ orgId, scopedProjectId: projectId });
  const outside = await control.createLive();
  await save(outside, { name: "shared" });
  await save(outside, { name: "apart" });
  const inside = await control.createLive({}, key);
  const saved = await control.ask(`POST /v1/sessions/${inside}/templates`, { key, body: { name: "shared" } });
  expect(saved.body).toMatchObject({ version: "2", versions: ["2"] });
  expect((await control.ask("GET /v1/templates", { key })).body.templates).toEqual([OFFICIAL, saved.body]);
  for (const template of ["apart", "shared@1"]) {
    expect((await control.ask("POST /v1/sessions", { key, body: { template } })).status).toBe(404);
    expect((await control.ask(`DELETE /v1/templates/${template}`, { key })).status).toBe(404);
  }
  expect((await control.ask("DELETE /v1/templates/shared", { key })).status).toBe(204);
  expect((await control.ask("GET /v1/templates/shared")).body.versions).toEqual(["1"]);
});

test("the timing is answered on request", async () => {
  const id = await control.createLive();
  const { body } = await save(id, { name: "tools" }, "?timing=true");
  expect(body.timing).toMatchObject({ stopped: 6, total: expect.any(Number) });
});
