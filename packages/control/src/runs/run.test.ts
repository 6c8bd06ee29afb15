import { request } from "node:http";
import type { AddressInfo } from "node:net";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { type LoggedLine, recordingLog } from "../../test-support/recording-log.ts";
import { createApp } from "../app.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(() => {
  control.node.onExec = (_call, output) => output().exit();
  control.node.onStart = () => {};
  control.node.execs.length = 0;
});
afterAll(() => control.close());

const run = (body: object) => control.ask("POST /v1/sessions/exec", { body });

test.each([
  [
    "python",
    "/workspace/main.py",
    ["python3", "main.py"],
    [
      "python3",
      "-m",
      "pip",
      "install",
      "--user",
      "--no-input",
      "--disable-pip-version-check",
      "-q",
      "a",
      "b==1",
    ],
  ],
  [
    "node",
    "/workspace/main.js",
    ["node", "main.js"],
    ["npm", "install", "--no-audit", "--no-fund", "--no-save", "a", "b==1"],
  ],
  ["bun", "/workspace/main.ts", ["bun", "run", "main.ts"], ["bun", "add", "a", "b==1"]],
])(
  "%s: writes the code, installs, runs, answers and leaves nothing",
  async (language, file, command, install) => {
    control.node.onExec = (call, output) => {
      const out = output();
      out.stdout(call.argv.includes("b==1") ? "installing" : "42\n");
      out.exit(0);
    };
    const { status, body } = await run({ language, code: "print(6*7) # ü", dependencies: ["a", "b==1"] });
    expect(status, JSON.stringify(body)).toBe(200);
    expect(body).toEqual({
      session_id: expect.stringMatching(/^[a-z0-9]{21}$/),
      stdout: "42\n",
      stderr: "",
      exit_code: 0,
      timed_out: false,
      duration_ms: 2,
      phase: "done",
      install_ms: expect.any(Number),
      restore_ms: expect.any(Number),
    });
    expect(control.node.files.get(file)?.toString()).toBe("print(6*7) # ü");
    expect(control.node.execs.map((call) => call.argv)).toEqual([install, command]);
    expect(control.node.machines.size).toBe(0);
    expect((await control.ask(`GET /v1/sessions/${body.session_id}`)).status).toBe(404);
    const history = await control.ask("GET /v1/sessions?state=ended&limit=1");
    expect(history.body.sessions[0]).toMatchObject({
      session_id: body.session_id,
      end_reason: "client_destroy",
    });
  },
);

test("without dependencies nothing is installed and install_ms is absent", async () => {
  const { body } = await run({ language: "python", code: "" });
  expect(body).not.toHaveProperty("install_ms");
  expect(control.node.execs).toHaveLength(1);
});

test("an installer that fails ends the run; the code never starts", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stderr("no such package");
    out.exit(1);
  };
  const { body } = await run({ language: "node", code: "x", dependencies: ["nope"] });
  expect(body).toMatchObject({
    phase: "install",
    exit_code: 1,
    stderr: "no such package",
    duration_ms: 0,
    timed_out: false,
  });
  expect(control.node.execs).toHaveLength(1);
});

test("the cap covers install and run together; the phase says which one was cut off", async () => {
  control.node.onExec = (call, output) => {
    if (call.argv[0] !== "bun" || call.argv[1] === "run") return output().exit(-1, { timed_out: true });
    setTimeout(() => output().exit(0), 100);
  };
  const { body } = await run({ language: "bun", code: "x", dependencies: ["a"], timeout_ms: 5000 });
  expect(body).toMatchObject({ phase: "run", exit_code: -1, timed_out: true });
  const [install, code] = control.node.execs.map((call) => call.timeout_ms);
  expect(install).toBeLessThanOrEqual(5000);
  expect(code).toBeLessThanOrEqual((install ?? 0) - 95);
});

test("null for env or secrets counts as left out", async () => {
  expect((await run({ language: "python", code: "", env: null, secrets: null })).status).toBe(200);
});

test("a non-zero exit is a result, not an error", async () => {
  control.node.onExec = (_call, output) => output().exit(9);
  const { status, body } = await run({ language: "python", code: "x" });
  expect([status, body.phase, body.exit_code]).toEqual([200, "done", 9]);
});

test("a run takes a slot of the concurrency limit, and is refused when all are taken", async () => {
  await control.sql.query("update orgs set concurrent_sessions = 1");
  const id = await control.createLive();
  const refused = await run({ language: "python", code: "" });
  expect([refused.status, refused.body.code]).toEqual([429, "account_concurrency_exceeded"]);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await run({ language: "python", code: "" })).status).toBe(200);
  await control.sql.query("update orgs set concurrent_sessions = 10");
});

test.each([
  ["disk_pressure", 503, "node_disk_pressure", "30", "too little free disk"],
  ["template_unavailable", 503, "template_version_unavailable", "5", "no baseline"],
  ["agent_unavailable", 503, "unavailable", "5", "its agent does not answer"],
  ["internal", 503, "unavailable", "5", "could not start the machine"],
  ["snapshot_damaged", 500, "internal", undefined, "is damaged"],
  ["snapshot_not_found", 500, "internal", undefined, "is gone"],
  ["snapshot_unfit", 409, "conflict", undefined, "does not continue on this host"],
] as const)(
  "a machine that cannot be made for %s is answered with %i %s, and leaves no session behind",
  async (refusal, status, code, retryAfter, text) => {
    control.node.onStart = () => {
      throw new Refusal(refusal);
    };
    const answer = await run({ language: "python", code: "" });
    expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
      status,
      code,
      retryAfter,
    ]);
    expect(answer.body.error).toContain(text);
    expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
  },
);

test("a run is refused at once while the node has too little free disk", async () => {
  await control.offer({ has_disk_room: false });
  const answer = await run({ language: "python", code: "" });
  await control.offer({ has_disk_room: true });
  expect([answer.status, answer.body.code]).toEqual([503, "node_disk_pressure"]);
  expect(answer.headers["retry-after"]).toBe("30");
});

test("a connection that breaks under the upload of the code leaves nothing uncertain", async () => {
  control.node.onFile = (_path, response) => void response.destroy();
  const answer = await run({ language: "python", code: "" });
  control.node.onFile = () => {};
  expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([502, "bad_gateway", "2"]);
  expect(control.node.execs).toEqual([]);
  expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
});

test("a run that breaks after it started is 500 and leaves no session behind", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    setTimeout(() => out.breakOff(), 20);
  };
  const answer = await run({ language: "python", code: "" });
  expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
  expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]);
});

test.each([
  ["starts", 0],
  ["runs", 1],
])(
  "a client that goes away while its run %s takes its machine with it, and is no failure",
  async (_when, execs) => {
    const logged: LoggedLine[] = [];
    const app = await createApp(control.settings, recordingLog(logged));
    await app.server.listen({ host: "127.0.0.1", port: 0 });
    const { port } = app.server.server.address() as AddressInfo;
    const asked = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    if (execs > 0) started.resolve();
    control.node.onStart = () => {
      asked.resolve();
      return started.promise;
    };
    control.node.onExec = (_call, output) => void output().stdout("x");
    const call = request(`http://127.0.0.1:${port}/v1/sessions/exec`, {
      method: "POST",
      headers: { authorization: `Bearer ${control.key}` },
    });
    call.on("error", () => {});
    call.end(JSON.stringify({ language: "python", code: "" }));
    await asked.promise;
    await eventually(() => expect(control.node.execs).toHaveLength(execs));
    call.destroy();
    // Time in which control hears of it.
    setTimeout(started.resolve, 300);
    const left = { level: "info", text: "the client left before its run ended" };
    await eventually(() => expect(logged).toContainEqual(left));
    await eventually(async () => expect((await control.ask("GET /v1/sessions")).body.sessions).toEqual([]));
    await eventually(() => expect(control.node.machines.size).toBe(0));
    await app.close();
    expect(logged.filter(({ level }) => !["info", "debug"].includes(level))).toEqual([]);
  },
);

test("a run whose process lives outlasts a time in which its lease could not be renewed", async () => {
  const end = Promise.withResolvers<void>();
  const execs = control.node.execs.length;
  control.node.onExec = async (_call, output) => {
    await end.promise;
    output().exit();
  };
  const answer = run({ language: "python", code: "" });
  await eventually(() => expect(control.node.execs.length).toBeGreaterThan(execs));
  await control.sql.query(
    "update sessions set destroy_after = now() - interval '1 second' where state = 'live' and origin = 'run'",
  );
  // Many ticks of the sweep.
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(control.node.machines.size).toBe(1);
  end.resolve();
  expect((await answer).status).toBe(200);
});

test("a run whose process died is destroyed when its lease runs out", async () => {
  const id = await control.createLive();
  await control.sql.query(
    "update sessions set origin = 'run', destroy_after = now() - interval '1 second' where id = $1",
    [id],
  );
  await eventually(() => expect(control.node.machines.size).toBe(0));
});

test.each([
  [{ code: "x" }, /^language: must be one of "python", "node", "bun", got nothing$/],
  [{ language: "ruby", code: "x" }, /^language: .* got "ruby"$/],
  [{ language: "python" }, /^code: must be a string, got nothing$/],
  [{ language: "python", code: 42 }, /^code: must be a string$/],
  [{ language: "python", code: "\ud800" }, /^code: must be valid Unicode$/],
  [{ language: "python", code: "x", dependencies: "a" }, /^dependencies: must be an array/],
  [
    { language: "python", code: "x", dependencies: Array(65).fill("a") },
    /^dependencies: must hold at most 64/,
  ],
  [{ language: "python", code: "x", dependencies: [""] }, /^dependencies\[0\]: each must be 1 to 256/],
  [
    { language: "python", code: "x", dependencies: ["a", "--index-url=x"] },
    /^dependencies\[1\]: must not start with "-"/,
  ],
  [{ language: "python", code: "x", timeout_ms: 3_600_001 }, /^timeout_ms: /],
  [{ language: "python", code: "x", size: "huge" }, /^size: /],
  [{ language: "python", code: "x", no_sudo: null }, /^no_sudo: must be a boolean/],
  [
    { language: "python", code: "x", egress: { mode: "deny" } },
    /^egress: is not accepted by a stateless run/,
  ],
  [{ language: "python", code: "x", env: {} }, /^env: is not accepted/],
  [{ language: "python", code: "x", egress: null }, /^egress: is not accepted/],
  [{ language: "python", code: "x", secrets: { A: "hunter2" } }, /^secrets: is not accepted/],
  [{ language: "python", code: "x", connections: [] }, /^connections: is not accepted/],
])("%j is refused", async (body, message) => {
  const answer = await run(body);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
  expect(control.node.execs).toEqual([]);
});

test.each([["volume_id"], ["template"], ["project_id"]])("an unknown %s is not found", async (field) => {
  const answer = await run({ language: "python", code: "x", [field]: "nothing" });
  expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
});
