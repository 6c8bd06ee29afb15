import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => control.destroyAll());
afterAll(() => control.close());

const create = (body?: unknown) => control.ask("POST /v1/sessions", { body });

test("a create without a body answers at once, with every default in the record", async () => {
  const { status, body } = await create();
  expect(status).toBe(200);
  expect(body).toEqual({
    session_id: expect.stringMatching(/^[a-z0-9]{21}$/),
    state: "creating",
    status_detail: "starting",
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    last_active_at: body.created_at,
    size: "small",
    vcpus: 1,
    mem_mb: 1024,
    no_sudo: false,
    on_pty_detach: "pause",
    paused_ttl_ms: 2_592_000_000,
    egress: { mode: "allow", allow: [] },
    wake_on_http: true,
    project_id: expect.stringMatching(/^prj_[a-z0-9]{21}$/),
  });
});

test("fields that are set are stored and shown by create, get and list", async () => {
  const settings = {
    size: "medium",
    name: "häuschen 1",
    labels: { team: "a", "": undefined, tier: "" },
    external_id: "ext/1",
    env: { A: "1", B: "zwei\n" },
    no_sudo: true,
    destroy_on_completion: true,
    wake_on_http: false,
    command_capture: "full",
    egress: { mode: "allow", allow: [] },
  };
  const { body } = await create({
    ...settings,
    on_detach: "keep_live",
    idle_mode: "ignored",
    connectors: [1],
    template: "base",
  });
  const { command_capture: _hidden, ...echoed } = settings;
  expect(body).toMatchObject({
    ...echoed,
    labels: { team: "a", tier: "" },
    on_pty_detach: "keep_live",
    vcpus: 2,
    mem_mb: 4096,
  });
  expect(body).not.toHaveProperty("template");
  const got = await control.until(body.session_id, "live");
  expect(got.body).toMatchObject({ ...echoed, labels: { team: "a", tier: "" } });
  const listed = await control.ask("GET /v1/sessions?external_id=ext/1");
  expect(listed.body.sessions[0]).toMatchObject({ name: "häuschen 1", external_id: "ext/1" });
});

test("null and zero mean the same as an omitted field", async () => {
  const { status, body } = await create({
    ...{ size: null, volume_id: null, name: null, labels: null, external_id: null, template: null },
    ...{ from_checkpoint: null, on_pty_detach: null, on_detach: null, destroy_on_completion: null },
    ...{
      project_id: null,
      command_capture: null,
      env: null,
      secrets: null,
      egress_cap_bytes: null,
      wake_on_http: null,
    },
    ...{ max_lifetime_ms: 0, idle_timeout_ms: null, paused_ttl_ms: 0 },
  });
  expect(status, JSON.stringify(body)).toBe(200);
  expect(body).not.toHaveProperty("name");
  expect(body.paused_ttl_ms).toBe(2_592_000_000);
});

const long = (chars: number) => "x".repeat(chars);
const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, "v"]));

describe("fields", () => {
  test.each([
    ["size", "tiny", 'size: must be one of "small", "medium", "large", got "tiny"'],
    ["size", 1, /^size: .*got 1$/],
    [
      "max_lifetime_ms",
      86_400_001,
      /^max_lifetime_ms: must be a whole number of milliseconds from 0 to 86400000, got 86400001$/,
    ],
    ["max_lifetime_ms", -1, /^max_lifetime_ms: .* got -1$/],
    ["max_lifetime_ms", 1.5, /^max_lifetime_ms: must be a whole number/],
    ["max_lifetime_ms", "1000", /^max_lifetime_ms: .* got "1000"$/],
    ["idle_timeout_ms", 3_600_001, /^idle_timeout_ms: .* 3600000/],
    [
      "paused_ttl_ms",
      2 ** 53,
      "paused_ttl_ms: must be a whole number from -9007199254740991 to 9007199254740991, got 9007199254740992",
    ],
    ["paused_ttl_ms", -(2 ** 53), /^paused_ttl_ms: must be a whole number from .* got -9007199254740992$/],
    ["paused_ttl_ms", 0.5, /^paused_ttl_ms: must be a whole number from .* got 0\.5$/],
    ["paused_ttl_ms", true, /^paused_ttl_ms: must be a whole number from .* got true$/],
    ["name", "", /^name: must be 1 to 128 characters long, got ""$/],
    ["name", long(129), /^name: must be 1 to 128 characters long/],
    ["name", "a\u0007b", /^name: must not contain control characters/],
    ["name", "\ud800", /^name: must be valid Unicode/],
    ["name", 7, "name: must be a string, got 7"],
    ["labels", [], /^labels: must be an object/],
    ["labels", many(65), "labels: must hold at most 64 entries, got an object of 65"],
    ["labels", { a: "\ud800" }, /^labels\.a: must be valid Unicode/],
    ["labels", { "\ud800": "v" }, /^labels: its keys must be valid Unicode/],
    ["labels", { a: 1 }, "labels.a: must be a string, got 1"],
    [
      "labels",
      { a: long(513) },
      /^labels\.a: must be at most 512 characters long, got "x+… of 513 characters$/,
    ],
    [
      "labels",
      { [long(129)]: "" },
      /^labels: its keys must be 1 to 128 characters long, got "x+… of 129 characters$/,
    ],
    ["labels", { "": "v" }, 'labels: its keys must be 1 to 128 characters long, got ""'],
    ["labels", { a: "\0" }, /^labels\.a: must not contain a NUL/],
    ["external_id", long(257), /^external_id: must be at most 256 characters long/],
    ["external_id", "a\nb", /^external_id: must not contain control/],
    ["no_sudo", null, "no_sudo: must be a boolean, got null"],
    ["no_sudo", "true", 'no_sudo: must be a boolean, got "true"'],
    ["on_pty_detach", "stop", /^on_pty_detach: must be one of "pause", "keep_live", "destroy", got "stop"$/],
    ["destroy_on_completion", 1, /^destroy_on_completion: must be a boolean/],
    ["wake_on_http", "no", /^wake_on_http: must be a boolean/],
    ["command_capture", "all", /^command_capture: must be one of/],
    ["egress", null, /^egress: must be an object/],
    ["egress", {}, /^egress\.mode: must be one of "allow", "deny", got nothing$/],
    ["egress", { mode: "alow" }, /^egress\.mode: .* got "alow"$/],
    ["egress", { mode: "allow", alow: [] }, "egress.alow: unknown field; this object takes no others"],
    ["egress", { mode: "allow", allow: "x" }, /^egress\.allow: must be an array/],
    ["egress", { mode: "allow", allow: [long(256)] }, /^egress\.allow\[0\]: /],
    [
      "egress",
      { mode: "deny", allow: ["a.example.com", "127.1"] },
      /^egress\.allow\[1\]: must be an IPv4 .*"127\.1"$/,
    ],
    ["egress", { mode: "allow", allow: ["*"] }, /^egress\.allow\[0\]: would allow every host/],
    ["egress_cap_bytes", -1, /^egress_cap_bytes: must be a whole number from 0 to \d+, got -1$/],
    [
      "egress_cap_bytes",
      2 ** 53,
      /^egress_cap_bytes: must be a whole number from 0 to 9007199254740991, got/,
    ],
    ["artifacts", { paths: "x" }, /^artifacts\.paths: must be an array/],
    ["artifacts", { paths: ["x"], to: 1 }, /^artifacts\.to: unknown field/],
    ["artifacts", { paths: [] }, /^artifacts\.paths: must hold at least one/],
    ["artifacts", { paths: ["../x"] }, /^artifacts\.paths\[0\]: path must be under \/workspace/],
    ["connections", Array(17).fill({}), /^connections: must hold at most 16/],
    ["connections", [{}], /^connections\[0\]\.name: must be a string/],
  ])("%s = %j is refused by name", async (field, value, message) => {
    const answer = await create({ [field]: value });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    if (typeof message === "string") expect(answer.body.error).toBe(message);
    else expect(answer.body.error).toMatch(message);
    expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
  });

  test.each(["max_lifetime_ms", "idle_timeout_ms", "paused_ttl_ms"])(
    "%s is a whole number as JSON has it, or absent, null or 0",
    async (field) => {
      const ask = (text: string) => control.ask("POST /v1/sessions", { raw: `{"${field}": ${text}}` });
      const wrong = [
        "1.5",
        '"10"',
        "1e309",
        "-1e309",
        "1e-1",
        "true",
        "[]",
        "{}",
        '""',
        "9007199254740993e1",
      ];
      for (const text of field === "paused_ttl_ms" ? wrong : [...wrong, "-1"]) {
        const { status, body } = await ask(text);
        expect([text, status, body.code]).toEqual([text, 400, "validation"]);
        expect(body.error).toMatch(new RegExp(`^${field}: must be a whole number`));
      }
      for (const text of ["null", "0", "60000", "6e4"])
        expect([text, (await ask(text)).status]).toEqual([text, 200]);
    },
  );

  test("errors of the request come before errors of the server", async () => {
    await create({ name: "taken" });
    const secrets = { A: "hunter2" };
    const answers = [
      await create({ template: "nothing", secrets }),
      await create({ name: "taken", secrets }),
    ];
    expect(answers.map(({ status, body }) => [status, body.code])).toEqual([
      [404, "not_found"],
      [409, "conflict"],
    ]);
    expect((await control.ask("GET /v1/sessions")).body.sessions).toHaveLength(1);
  });

  test("an unknown template is reported before a taken name", async () => {
    await create({ name: "taken" });
    const answer = await create({ template: "nothing", name: "taken" });
    expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
  });

  test.each([
    [{ env: { "1A": "hunter2" } }, /^env: its keys must match .*, got "1A"$/],
    [{ env: { "A=B": "hunter2" } }, /^env: its keys must match .*, got "A=B"$/],
    [{ env: { "A\0": "hunter2" } }, /^env: its keys must match /],
    [{ env: { "": "hunter2" } }, /^env: its keys must match /],
    [{ env: { A: "hunter2\0" } }, /^env\.A: must not contain a NUL/],
    [
      { env: { [long(129)]: "hunter2" } },
      /^env: its keys must be at most 128 characters long, got "x+… of 129 characters$/,
    ],
    [{ env: { A: `hunter2${long(65_530)}` } }, /^env: must be at most 65536 bytes together, got 65538$/],
    [{ env: { A: 1 } }, /^env\.A: must be a string$/],
    [{ env: "hunter2" }, /^env: must be an object$/],
    [{ secrets: { "A-B": "hunter2" } }, /^secrets: its keys must match .*, got "A-B"$/],
    [{ env: { A: "x" }, secrets: { A: "hunter2" } }, "secrets.A: must not be in env as well"],
    [
      { env: { A: long(40_000) }, secrets: { B: long(40_000) } },
      /^env: must be at most 65536 bytes together with secrets/,
    ],
  ])("variables are refused without their values: %#", async (body, message) => {
    const answer = await create(body);
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    if (typeof message === "string") expect(answer.body.error).toBe(message);
    else expect(answer.body.error).toMatch(message);
    expect(answer.body.error).not.toContain("hunter2");
  });

  test("variables that steer a guest's programs are taken, since they steer nothing else", async () => {
    const env = { LD_PRELOAD: "/workspace/x.so", PATH: "/workspace", HOME: "/", _: "x" };
    const { status, body } = await create({ env });
    expect([status, body.env]).toEqual([200, env]);
  });

  test("combinations that contradict each other are refused before what is not supported yet", async () => {
    const error = async (body: object) => (await create(body)).body.error;
    expect(await error({ max_lifetime_ms: 1000, paused_ttl_ms: -1 })).toMatch(
      /^paused_ttl_ms: must not be negative/,
    );
    expect(await error({ on_pty_detach: "pause", on_detach: "destroy" })).toMatch(
      /^on_detach: must equal on_pty_detach/,
    );
    expect(await error({ from_checkpoint: "chk_x", template: "base" })).toMatch(
      /^from_checkpoint: must not be combined/,
    );
    expect((await create({ on_pty_detach: "destroy", on_detach: "destroy" })).status).toBe(200);
  });
});

test.each([
  ["volume_id", "vol_x"],
  ["from_checkpoint", "chk_x"],
  ["template", "debian"],
  ["template", "base@1"],
  ["project_id", "prj_aaaaaaaaaaaaaaaaaaaaa"],
])("%s = %j is not found", async (field, value) => {
  const answer = await create({ [field]: value });
  expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
  expect(answer.body.error).toMatch(new RegExp(`^${field}: no `));
});

test("a name can be taken again only once its session is destroyed", async () => {
  const id = await control.create({ name: "one" });
  const clash = await create({ name: "one" });
  expect([clash.status, clash.body.code]).toEqual([409, "conflict"]);
  expect(clash.body.error).toMatch(/^name: .*"one"/);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await create({ name: "one" })).status).toBe(200);
});

test("two simultaneous creates of one name make one session", async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => create({ name: "race" })));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(7).fill(409)]);
});

test("at most ten sessions are creating or live at once, even after simultaneous creates", async () => {
  const answers = await Promise.all(Array.from({ length: 14 }, () => create()));
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused).toHaveLength(4);
  expect(refused[0]?.body.code).toBe("account_concurrency_exceeded");
  expect(refused[0]?.headers["retry-after"]).toBe("5");
  const org = await control.ask("GET /v1/org");
  expect(org.body.capacity).toEqual({ running: 10, warm: 0, limits: { running: 10 } });
});

test("a key may have its own ceiling", async () => {
  const { rows } = await control.sql.query("select org_id from api_keys limit 1");
  const key = await control.addKey({ orgId: rows[0].org_id, ceiling: 1 });
  await control.create({}, key);
  const answer = await control.ask("POST /v1/sessions", { key });
  expect([answer.status, answer.body.code]).toEqual([429, "key_concurrency_exceeded"]);
  expect((await create()).status).toBe(200);
});

test("a size that no node can start is refused, with another error than for a node that is away", async () => {
  const { baselines } = control.node.info;
  await control.offer({
    baselines: ["1", "2"].map((version) => ({ template: "base", size: "small", version })),
  });
  const answer = await create({ size: "large" });
  expect([answer.status, answer.body.code]).toEqual([503, "size_unavailable"]);
  expect(answer.headers["retry-after"]).toBeUndefined();
  expect(answer.body.error).toBe("size: large can be started on no node; available: small");
  await control.offer({ baselines });
});

test("a node with too little free disk refuses a create, with Retry-After", async () => {
  await control.offer({ has_disk_room: false });
  const answer = await create();
  expect([answer.status, answer.body.code]).toEqual([503, "node_disk_pressure"]);
  expect(answer.headers["retry-after"]).toBe("30");
  await control.offer({ has_disk_room: true });
  expect((await create()).status).toBe(200);
});
