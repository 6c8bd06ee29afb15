/** Projects: made, listed, changed and deleted with keys of the whole organisation. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Ask, type Control, startControl } from "../../test-support/control.ts";
import { whileOrgIsLocked } from "../../test-support/locked-org.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const ask = (call: string, body?: object, more: Ask = {}) =>
  control.ask(call, { ...more, ...(body && { body }) });
const make = async (name: string, more: object = {}) =>
  (await ask("POST /v1/projects", { name, ...more })).body as { id: string };
const names = async (key = control.key) =>
  (await ask("GET /v1/projects", undefined, { key })).body.projects.map(({ name }: { name: string }) => name);
const keyOf = async (project: string) =>
  (await ask("POST /v1/api-keys", { name: "k", project_id: project })).body.key as string;

test("a project is made, listed after the default one, and changed field by field", async () => {
  const made = await ask("POST /v1/projects", { name: "web", labels: { team: "a" } });
  expect([made.status, made.body]).toEqual([
    201,
    {
      id: expect.stringMatching(/^prj_[a-z0-9]{21}$/),
      name: "web",
      labels: { team: "a" },
      created_at: expect.stringMatching(/Z$/),
      is_default: false,
    },
  ]);
  await make("api");
  expect(await names()).toEqual(["default", "api", "web"]);
  const path = `/v1/projects/${made.body.id}`;
  expect((await ask(`PATCH ${path}`, { name: "site" })).body).toEqual({ ...made.body, name: "site" });
  expect((await ask(`PATCH ${path}`, { labels: null })).body).not.toHaveProperty("labels");
  expect((await ask(`PATCH ${path}`, {})).body.name).toBe("site");
  expect((await ask(`GET ${path}`)).body.name).toBe("site");
});

test("a field that no project has is refused with its name, and changes nothing", async () => {
  const { id } = await make("closed");
  const before = await names();
  for (const answer of [
    await ask("POST /v1/projects", { name: "open", label: { team: "a" } }),
    await ask(`PATCH /v1/projects/${id}`, { name: "open", label: { team: "a" } }),
  ])
    expect([answer.status, answer.body.error]).toEqual([
      400,
      "label: unknown field; this object takes no others",
    ]);
  expect(await names()).toEqual(before);
});

test("a name that another project has is a conflict, for a new one and for a change", async () => {
  await make("taken");
  const other = await make("other");
  for (const answer of [
    await ask("POST /v1/projects", { name: "taken" }),
    await ask(`PATCH /v1/projects/${other.id}`, { name: "taken" }),
  ])
    expect([answer.status, answer.body.error]).toEqual([409, 'name: another project is called "taken"']);
});

test.each([[{}], [{ name: "" }], [{ name: "x".repeat(129) }], [{ name: "x", labels: { a: 1 } }]])(
  "%j is refused",
  async (body) => expect((await ask("POST /v1/projects", body)).status).toBe(400),
);

test("a project with a session that has not ended is not deleted; one without is, with its keys", async () => {
  const { id } = await make("busy");
  const key = await keyOf(id);
  const session = await control.createLive({}, key);
  const deletion = () => ask(`DELETE /v1/projects/${id}`);
  expect((await deletion()).status).toBe(409);
  await ask(`DELETE /v1/sessions/${session}`);
  expect((await deletion()).status).toBe(204);
  expect((await ask("GET /v1/org", undefined, { key })).status).toBe(401);
  const { rows } = await control.sql.query("select project_id from sessions where id = $1", [session]);
  expect(rows).toEqual([{ project_id: id }]);
  expect((await deletion()).status).toBe(404);
  expect((await ask("POST /v1/sessions", { project_id: id })).status).toBe(404);
  expect((await ask("POST /v1/projects", { name: "busy" })).status).toBe(201);
});

test("the default project stays", async () => {
  const { body } = await ask("GET /v1/projects");
  const own = body.projects.find(({ is_default }: { is_default: boolean }) => is_default);
  expect((await ask(`DELETE /v1/projects/${own.id}`)).status).toBe(409);
});

test("a key of a project sees that project alone, and changes none", async () => {
  const { id } = await make("mine");
  const other = await make("theirs");
  const key = await keyOf(id);
  expect(await names(key)).toEqual(["mine"]);
  const statusOf = async (call: string, body?: object) => (await ask(call, body, { key })).status;
  expect(await statusOf(`GET /v1/projects/${other.id}`)).toBe(404);
  expect(await statusOf(`DELETE /v1/projects/${other.id}`)).toBe(404);
  expect(await statusOf(`DELETE /v1/projects/${id}`)).toBe(403);
  expect(await statusOf(`PATCH /v1/projects/${id}`, { name: "x" })).toBe(403);
  expect(await statusOf("POST /v1/projects", { name: "x" })).toBe(403);
});

test("a key of the project that another process makes while the deletion waits is revoked with it", async () => {
  const { id } = await make("waited for");
  await keyOf(id);
  const answer = await whileOrgIsLocked(
    control,
    () => ask(`DELETE /v1/projects/${id}`),
    (sql) =>
      sql.query(
        `insert into api_keys (id, org_id, name, digest, scoped_project_id)
          select 'key_' || repeat('b', 21), org_id, 'late', '\\x00', id from projects where id = $1`,
        [id],
      ),
  );
  expect(answer.status).toBe(204);
  const { rows } = await control.sql.query(
    "select name, revoked_at is not null as revoked from api_keys where scoped_project_id = $1 order by name",
    [id],
  );
  expect(rows).toEqual([
    { name: "k", revoked: true },
    { name: "late", revoked: true },
  ]);
});

test.each(["POST /v1/sessions", "POST /v1/sessions/exec", "POST /v1/api-keys"])(
  "%s is 404 if its project is deleted by another process while it waits, and makes nothing",
  async (call) => {
    const { id } = await make(`deleted before ${call}`);
    const body = {
      project_id: id,
      ...(call.endsWith("keys") && { name: "n" }),
      ...(call.endsWith("exec") && { language: "python", code: "" }),
    };
    const answer = await whileOrgIsLocked(
      control,
      () => ask(call, body),
      (sql) => sql.query("update projects set deleted_at = now() where id = $1", [id]),
    );
    expect([answer.status, answer.body.error]).toEqual([
      404,
      "project_id: no project of your organisation has this id",
    ]);
    const { rows } = await control.sql.query(
      `select id from sessions where project_id = $1
        union all select id from api_keys where scoped_project_id = $1`,
      [id],
    );
    expect(rows).toEqual([]);
  },
);
