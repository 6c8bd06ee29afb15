import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const MIB = 1024 * 1024;
let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  id = await control.createLive({ env: { GREETING: "hi", VIVARIUM_SESSION_ID: "mine" } });
});
afterEach(() => {
  control.node.onExec = (_call, output) => output().exit();
  control.node.onStart = () => {};
});
afterAll(() => control.close());

test("answers with the output, the exit code and the time the command took", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout("out\n");
    out.stderr("err\n");
    out.exit(3);
  };
  const { status, body } = await control.exec(id, ["sh", "-c", "x"]);
  expect(status).toBe(200);
  expect(body).toEqual({
    stdout: "out\n",
    stderr: "err\n",
    exit_code: 3,
    duration_ms: 2,
    timed_out: false,
    sandbox_id: id,
  });
});

test("passes argv, the session's variables, the default timeout and the cap on", async () => {
  await control.exec(id, ["printf", "%s", "", "ü"]);
  expect(control.node.execs.at(-1)).toEqual({
    machineId: `${id}-1`,
    argv: ["printf", "%s", "", "ü"],
    env: { VIVARIUM_SESSION_ID: "mine", GREETING: "hi" },
    timeout_ms: 30_000,
    output_limit_bytes: 4 * MIB,
  });
  await control.exec(id, ["x"], { cwd: "sub", timeout_ms: 3_600_000 });
  expect(control.node.execs.at(-1)).toMatchObject({ cwd: "sub", timeout_ms: 3_600_000 });
  await control.exec(id, ["x"], { cwd: null, timeout_ms: 0 });
  expect(control.node.execs.at(-1)).toMatchObject({ timeout_ms: 30_000 });
  expect(control.node.execs.at(-1)).not.toHaveProperty("cwd");
});

test("a timeout is an answer like any other, with the output so far", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout("so far");
    out.exit(-1, { timed_out: true });
  };
  expect((await control.exec(id)).body).toMatchObject({ stdout: "so far", exit_code: -1, timed_out: true });
});

test("output past 4 MiB is cut, before a character that would be split", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    const block = Buffer.from("€".repeat(20_000));
    for (let sent = 0; sent < 5 * MIB; sent += block.length) out.stdout(block);
    out.stderr("short");
    out.exit(0);
  };
  const { body } = await control.exec(id);
  expect(body.truncated).toBe(true);
  expect(Buffer.byteLength(body.stdout)).toBe(4 * MIB - 1);
  expect(body.stdout.endsWith("€")).toBe(true);
  expect(body.stderr).toBe("short");
});

test("an agent that says that it cut is believed", async () => {
  control.node.onExec = (_call, output) => output().exit(0, { stderr_truncated: true });
  expect((await control.exec(id)).body.truncated).toBe(true);
});

test("streams that are not UTF-8 come as base64, each on its own", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout(Buffer.from([0xff, 0x00]));
    out.stderr("plain");
    out.exit(0);
  };
  const { body } = await control.exec(id);
  expect(body).toMatchObject({ stdout: "/wA=", stdout_encoding: "base64", stderr: "plain" });
  expect(body).not.toHaveProperty("stderr_encoding");
  expect(body).not.toHaveProperty("truncated");
});

test("a command in a session that is being created waits for it", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const young = await control.create();
  const exec = control.exec(young);
  setTimeout(resolve, 100);
  expect((await exec).status).toBe(200);
});

test("a command that waits learns that its session failed, or was destroyed", async () => {
  const { promise, reject } = Promise.withResolvers<void>();
  control.node.onStart = () => promise;
  const first = await control.create();
  const second = await control.create();
  const execs = [control.exec(first), control.exec(second)];
  // A waiting command cannot be observed. Both get far longer than it takes to find their sessions.
  await new Promise((done) => setTimeout(done, 1_000));
  await control.ask(`DELETE /v1/sessions/${second}`);
  reject(new Refusal("internal"));
  const [failed, destroyed] = await Promise.all(execs);
  expect([failed?.status, failed?.body.code]).toEqual([409, "conflict"]);
  expect([destroyed?.status, destroyed?.body.code]).toEqual([410, "session_ended"]);
});

describe("before the command starts", () => {
  test.each([
    ["cwd_not_found", 400, "validation", /^cwd: .*no such file or directory/],
    ["cwd_not_a_directory", 400, "validation", /^cwd: .*not a directory/],
    ["agent_unavailable", 503, "session_unavailable", /does not answer/],
    ["machine_gone", 503, "session_unavailable", /does not answer/],
    ["internal", 500, "internal", /^the node or the machine failed unexpectedly$/],
    ["outcome_unknown", 500, "internal", /whether the operation started is unknown/],
  ] as const)("a node that says %s gives %i %s", async (code, status, apiCode, message) => {
    control.node.onExec = () => {
      throw new Refusal(code);
    };
    const answer = await control.exec(id, ["true"], { cwd: "/nowhere" });
    expect([answer.status, answer.body.code]).toEqual([status, apiCode]);
    expect(answer.body.error).toMatch(message);
  });

  test.each([
    ["cwd: the user may not enter it: Permission denied", /^cwd: the user may not enter it/],
    ["argv: expected a command, got none", /^command: the machine refuses it: argv: expected a command/],
    ["because", /^command: the machine refuses it: because$/],
  ])("a guest that refuses with %j is quoted under the field's name", async (words, message) => {
    control.node.onExec = () => {
      throw new Refusal("invalid", words);
    };
    const answer = await control.exec(id, ["true"], { cwd: "/root" });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });

  test("a pause under the start is 409, not retryable: the command may run on after the wake", async () => {
    const paused = await control.createLive();
    const before = control.node.execs.length;
    control.node.onExec = async () => {
      await control.ask(`POST /v1/sessions/${paused}/pause`);
      throw new Refusal("outcome_unknown");
    };
    const answer = await control.exec(paused);
    expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
    expect(answer.body.error).toMatch(/^the session was paused while the command was being started/);
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(control.node.execs.length).toBe(before + 1);
  });

  test("a connection that breaks before the answer is not called retryable: the command may run", async () => {
    control.node.onExec = async (_call, output) => output().breakOff();
    const answer = await control.exec(id);
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
  });
});

describe("after the command started", () => {
  test.each<[string, Parameters<typeof breakWith>[0]]>([
    ["the connection breaks", (out) => out.breakOff()],
    ["the answer ends without an exit", (out) => out.endWithoutExit()],
    ["the agent lost the command", (out) => out.error("lost")],
    ["the frames are garbage", (out) => out.raw(Buffer.from("garbage!"))],
    ["the exit is garbage", (out) => out.raw(Buffer.from([3, 0, 0, 0, 2, 0x7b, 0x7d]))],
  ])("when %s, the answer is 500 and nothing is run again", async (_name, fault) => {
    breakWith(fault);
    const before = control.node.execs.length;
    const answer = await control.exec(id);
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(control.node.execs.length).toBe(before + 1);
  });

  function breakWith(fault: (out: ReturnType<Parameters<typeof control.node.onExec>[1]>) => void): void {
    control.node.onExec = (_call, output) => {
      const out = output();
      out.stdout("x");
      setTimeout(() => fault(out), 20);
    };
  }
});

test("a session that is destroyed under a command answers 410", async () => {
  const victim = await control.createLive();
  control.node.onExec = (_call, output) => void output();
  const exec = control.exec(victim);
  await eventually(() => expect(control.node.execs.at(-1)?.machineId).toBe(`${victim}-1`));
  await control.ask(`DELETE /v1/sessions/${victim}`);
  const answer = await exec;
  expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
});

test("destroy_on_completion destroys after the first command, whatever its exit code", async () => {
  control.node.onExec = (_call, output) => output().exit(7);
  const once = await control.createLive({ destroy_on_completion: true });
  expect((await control.exec(once)).body.exit_code).toBe(7);
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${once}`)).status).toBe(404));
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=1");
  expect(body.sessions[0]).toMatchObject({ session_id: once, end_reason: "client_destroy" });
});

test("a completed session whose process died before destroying it is destroyed by the sweep", async () => {
  const once = await control.createLive();
  await control.sql.query("update sessions set destroy_after = now() - interval '1 second' where id = $1", [
    once,
  ]);
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${once}`)).status).toBe(404));
});

test("a command moves last_active_at, reading does not", async () => {
  const read = async () => (await control.ask(`GET /v1/sessions/${id}`)).body.last_active_at;
  await control.exec(id);
  const before = await read();
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(await read()).toBe(before);
  await control.exec(id);
  const after = await read();
  expect(after > before).toBe(true);
  await eventually(async () => {
    const { rows } = await control.sql.query("select last_active_at from sessions where id = $1", [id]);
    expect(rows[0].last_active_at.toISOString()).toBe(after);
  });
});

describe("the request", () => {
  test.each([
    [{}, /^command: must be an array, got nothing$/],
    [{ command: "ls" }, /^command: must be an array, got "ls"$/],
    [{ command: [] }, /^command: must hold 1 to 1024 strings, got an array of 0$/],
    [{ command: Array(1025).fill("x") }, /^command: must hold 1 to 1024 strings/],
    [{ command: [""] }, /^command: must not start with an empty string/],
    [{ command: ["a", 1] }, /^command\[1\]: must be a string, got 1$/],
    [{ command: ["a", "b\0"] }, /^command\[1\]: must not contain a NUL/],
    [{ command: ["a", "\ud800"] }, /^command\[1\]: must be valid Unicode/],
    [{ command: ["a"], cwd: "" }, /^cwd: /],
    [{ command: ["a"], cwd: 1 }, /^cwd: must be a string/],
    [{ command: ["a"], cwd: "x".repeat(4097) }, /^cwd: must be at most 4096 characters/],
    [{ command: ["a"], timeout_ms: -1 }, /^timeout_ms: .* from 0 to 3600000, got -1$/],
    [{ command: ["a"], timeout_ms: 3_600_001 }, /^timeout_ms: .* got 3600001$/],
    [{ command: ["a"], timeout_ms: "5" }, /^timeout_ms: .* got "5"$/],
  ])("%j is refused", async (body, message) => {
    const before = control.node.execs.length;
    const answer = await control.ask(`POST /v1/sessions/${id}/exec`, { body });
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
    expect(control.node.execs.length).toBe(before);
  });

  test("stream takes true, false, 1 and 0", async () => {
    for (const value of ["false", "0"]) {
      const answer = await control.ask(`POST /v1/sessions/${id}/exec?stream=${value}`, {
        body: { command: ["true"] },
      });
      expect(answer.body.exit_code).toBe(0);
    }
    for (const value of ["yes", "", "TRUE", "true&stream=true"]) {
      const answer = await control.ask(`POST /v1/sessions/${id}/exec?stream=${value}`, {
        body: { command: ["true"] },
      });
      expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
      expect(answer.body.error).toMatch(/^stream: /);
    }
  });
});

test("long outputs are answered however many there were before, also of batches and runs", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    const block = Buffer.alloc(32 * 1024, "a");
    for (let sent = 0; sent < 128 * 1024; sent += block.length) out.stdout(block);
    out.exit(0);
  };
  const answers = [];
  // The quota of an organisation is sixteen of these at a time.
  for (let round = 0; round < 2; round++) {
    answers.push(...(await Promise.all(Array.from({ length: 20 }, () => control.exec(id)))));
  }
  // Or two of these.
  for (let round = 0; round < 4; round++) {
    const body = { session_ids: [id, id], command: ["x"] };
    answers.push(await control.ask("POST /v1/sessions/batch/exec", { body }));
  }
  for (let round = 0; round < 17; round++) {
    answers.push(await control.ask("POST /v1/sessions/exec", { body: { language: "python", code: "x" } }));
  }
  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
});
