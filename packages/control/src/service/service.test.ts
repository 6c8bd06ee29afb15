import { spawn } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());

const health = () => control.ask("GET /v1/healthz", { key: null });
/** The answer once all parts of the service have answered it in time, which they have not while this process is stalled. */
const healthInTime = () =>
  eventually(async () => {
    const answer = await health();
    expect(answer.status).toBe(200);
    return answer;
  });

test("a well service says so without a credential", async () => {
  const { status, body } = await healthInTime();
  expect(status).toBe(200);
  expect(body).toEqual({
    status: "ok",
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
    isolation: "emulated",
    checks: { store: "ok", runtime: "ok", images: "ok", disk: "ok", secrets_key: "ok", cold_tier: "off" },
  });
});

test("a node of which some saved states are emulated is mixed, with their number", async () => {
  const whole = control.node.info;
  control.node.info = { ...whole, isolation: "mixed", emulated_states: 3 };
  expect((await healthInTime()).body).toMatchObject({ status: "ok", isolation: "mixed", emulated_states: 3 });
  control.node.info = { ...whole, isolation: "kvm" };
  const { body } = await healthInTime();
  expect([body.isolation, body.emulated_states]).toEqual(["kvm", undefined]);
  control.node.info = whole;
});

test("a failed check degrades the service, which still answers 200", async () => {
  const whole = control.node.info;
  control.node.info = { ...whole, disk: { free_bytes: 1, total_bytes: 100 }, baselines: [] };
  const { status, body } = await healthInTime();
  expect([status, body.status, body.checks.disk, body.checks.images]).toEqual([
    200,
    "degraded",
    "fail",
    "fail",
  ]);
  control.node.info = whole;
  await control.offer({});
});

test("a node that refuses machines, since their limits cannot be set, fails the check of the runtime", async () => {
  const whole = control.node.info;
  control.node.info = { ...whole, limits_refused: true, cgroup_lack: "no bus" };
  // On a busy host a check may be late, and the answer 503.
  const body = await eventually(async () => {
    const answer = await health();
    expect(answer.status).toBe(200);
    return answer.body;
  });
  control.node.info = whole;
  expect([body.status, body.checks.runtime]).toEqual(["degraded", "fail"]);
});

test.each([
  ["another size", [{ template: "base", size: "large" }], "fail"],
  ["another template", [{ template: "ai", size: "small" }], "fail"],
  [
    "another version than the current one",
    [
      { template: "base", size: "large", version: "2", is_current: true },
      { template: "base", size: "small", version: "1", is_current: false },
    ],
    "fail",
  ],
  [
    "the default template and size",
    [{ template: "base", size: "small", version: "1", is_current: true }],
    "ok",
  ],
])("a node that can start %s alone", async (_title, baselines, images) => {
  const { baselines: all } = control.node.info;
  control.node.info = { ...control.node.info, baselines };
  const { body } = await healthInTime();
  await control.offer({ baselines: all });
  expect([body.checks.images, body.status]).toEqual([images, images === "ok" ? "ok" : "degraded"]);
});

test("a node that is away or hangs makes the service unavailable within a second", async () => {
  await control.node.goDown();
  const looks: number[] = [];
  // A process that is stalled is late by that; one that waits for its node is late at every look.
  while (looks.length < 5 && !looks.some((ms) => ms < 1000)) {
    const startedAt = performance.now();
    const answer = await health();
    expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
      503,
      "unavailable",
      "5",
    ]);
    looks.push(performance.now() - startedAt);
  }
  expect(Math.min(...looks)).toBeLessThan(1000);
  await control.node.listen();
  expect((await healthInTime()).status).toBe(200);
});

test("the organisation's capacity and limits", async () => {
  const { body } = await control.ask("GET /v1/org");
  expect(body).toMatchObject({
    org_id: expect.stringMatching(/^org_/),
    suspended: false,
    capacity: { running: 0, warm: 0, limits: { running: 10 } },
    limits: { concurrent_sessions: 10, fork_children: 4, max_lifetime_ms: 86_400_000 },
    default_size: "small",
  });
  expect(body.sizes.map((size: { name: string; available: boolean }) => [size.name, size.available])).toEqual(
    [
      ["small", true],
      ["medium", true],
      ["large", true],
    ],
  );
});

test("warm machines of saved states are shown to the owners of their templates", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "mine" } });
  const saved = [...control.node.snapshots.keys()].at(-1);
  const base = { template: "base", size: "small", ready: 1 };
  const whole = control.node.info;
  control.node.info = {
    ...whole,
    warm: [
      base,
      { ...base, snapshot_id: saved, ready: 2, wanted: 4 },
      { ...base, snapshot_id: "tpl_of_nobody" },
    ],
  };
  const pool = async (key?: string) => (await control.ask("GET /v1/org", { key })).body.capacity.pool;
  await eventually(async () =>
    expect(await pool()).toEqual([base, { template: "mine@1", size: "small", ready: 2, wanted: 4 }]),
  );
  expect(await pool(await control.addKey())).toEqual([base]);
  control.node.info = whole;
  await control.offer({});
  await control.destroyAll();
});

test("connections to the database that break cost at most a 503, and no session", async () => {
  const id = await control.createLive();
  const asks = Array.from({ length: 30 }, async (_, index) => {
    await new Promise((resolve) => setTimeout(resolve, index * 10));
    return await control.ask(`GET /v1/sessions/${id}`);
  });
  for (let round = 0; round < 5; round++) {
    await control.sql.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  for (const { status, body, headers } of await Promise.all(asks)) {
    if (status !== 200)
      expect([status, body.code, headers["retry-after"]]).toEqual([503, "unavailable", "5"]);
  }
  // The service may not know yet that its idle connections are gone.
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("live"));
});

test("the program refuses a missing or wrong setting with a sentence that names it", async () => {
  const start = async (env: Record<string, string>) => {
    const child = spawn(process.execPath, [new URL("../main.ts", import.meta.url).pathname], {
      env,
      stdio: ["ignore", "ignore", "pipe"],
    });
    let text = "";
    child.stderr.on("data", (chunk) => {
      text += chunk;
    });
    const code = await new Promise((resolve) => child.once("close", resolve));
    return { code, text };
  };
  expect(await start({})).toEqual({
    code: 1,
    text: expect.stringMatching(/^control cannot start: environment variable DATABASE_URL: is required/),
  });
  const wrong = await start({ DATABASE_URL: "postgresql://x", VIV_LISTEN: "7400" });
  expect(wrong.text).toContain("VIV_LISTEN: must be host:port");
});
