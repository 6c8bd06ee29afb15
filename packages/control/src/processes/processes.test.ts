/** Named processes over a fake node. */
import { GUEST_ERRORS } from "@vivarium/contract/guest";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";

let control: Control;
let id: string;
const bodies: unknown[] = [];
beforeAll(async () => {
  control = await startControl();
  id = await control.createLive({ env: { GREETING: "hi" } });
});
beforeEach(() => {
  control.node.guestCalls.length = 0;
  bodies.length = 0;
  answers({ processes: [] });
});
afterAll(() => control.close());

const ask = (call: string, body?: unknown, session = id) => {
  const [method, rest = ""] = call.split(" ");
  return control.ask(`${method} /v1/sessions/${session}/processes${rest}`, { body });
};
const answers = (answer: unknown) => {
  control.node.onGuest = async (call) => {
    bodies.push(JSON.parse((await call.body()).toString() || "null"));
    call.json(answer);
  };
};
const refuses = (code: ConstructorParameters<typeof Refusal>[0], message?: string) => {
  control.node.onGuest = () => {
    throw new Refusal(code, message);
  };
};
const calls = () => control.node.guestCalls.map(({ call }) => call);

const RUNNING = {
  name: "web",
  argv: ["python3", "-m", "http.server"],
  keep_alive: true,
  pid: 77,
  state: "running",
  started_at_ms: Date.UTC(2027, 2, 1, 9, 30, 0, 125),
} as const;
const EXITED = {
  ...RUNNING,
  state: "exited",
  exit_code: 0,
  ended_at_ms: RUNNING.started_at_ms + 1000,
} as const;
const INFO = {
  name: "web",
  pid: 77,
  command: ["python3", "-m", "http.server"],
  state: "running",
  keep_alive: true,
  started_at: "2027-03-01T09:30:00.125Z",
};

describe("start", () => {
  test("answers with the process; it gets the session's environment", async () => {
    answers(RUNNING);
    const { status, body } = await ask("POST ", {
      name: "web",
      command: RUNNING.argv,
      cwd: "src",
      keep_alive: true,
    });
    expect([status, body]).toEqual([200, INFO]);
    expect(calls()).toEqual(["POST processes"]);
    expect(bodies).toEqual([
      {
        name: "web",
        argv: RUNNING.argv,
        cwd: "src",
        keep_alive: true,
        env: { VIVARIUM_SESSION_ID: id, GREETING: "hi" },
      },
    ]);
  });

  test("keep_alive is false unless asked for, cwd is left to the guest", async () => {
    answers({ ...RUNNING, keep_alive: false });
    const { body } = await ask("POST ", { name: "web", command: ["x"], keep_alive: null, cwd: null });
    expect(body.keep_alive).toBe(false);
    expect(bodies[0]).not.toHaveProperty("cwd");
    expect(bodies[0]).toMatchObject({ keep_alive: false });
  });

  test("a command that could not be spawned is a 200: exited, without a pid", async () => {
    const { pid: _pid, ...rest } = EXITED;
    answers({ ...rest, exit_code: 127 });
    const { status, body } = await ask("POST ", { name: "web", command: ["no-such"] });
    expect([status, body]).toEqual([
      200,
      {
        name: "web",
        command: RUNNING.argv,
        state: "exited",
        keep_alive: true,
        started_at: INFO.started_at,
        exit_code: 127,
        ended_at: "2027-03-01T09:30:01.125Z",
      },
    ]);
  });

  test.each([
    ["process_exists", 409, "conflict", `name: ${GUEST_ERRORS.process_exists.text}`],
    ["process_limit", 409, "conflict", GUEST_ERRORS.process_limit.text],
    ["spawn_failed", 503, "session_unavailable", GUEST_ERRORS.spawn_failed.text],
    ["cwd_not_found", 400, "validation", "cwd: no such file or directory"],
    ["cwd_not_a_directory", 400, "validation", "cwd: not a directory"],
  ] as const)("%s is %i %s", async (refusal, status, code, error) => {
    refuses(refusal);
    const answer = await ask("POST ", { name: "web", command: ["x"], cwd: "a" });
    expect([answer.status, answer.body]).toEqual([status, { error, code }]);
  });

  test.each([
    [{ command: ["x"] }, /^name: must be a string, got nothing$/],
    [{ name: "", command: ["x"] }, /^name: must be 1 to 63 of a-z/],
    [{ name: "Web", command: ["x"] }, /^name: must be 1 to 63 of a-z/],
    [{ name: "-web", command: ["x"] }, /^name: must be 1 to 63 of a-z/],
    [{ name: "../x", command: ["x"] }, /^name: must be 1 to 63 of a-z/],
    [{ name: "w".repeat(64), command: ["x"] }, /^name: must be 1 to 63 of a-z/],
    [{ name: "web" }, /^command: must be an array, got nothing$/],
    [{ name: "web", command: [] }, /^command: must hold 1 to 1024 strings/],
    [{ name: "web", command: ["a\0"] }, /^command\[0\]: must not contain a NUL/],
    [{ name: "web", command: ["x"], cwd: "" }, /^cwd: /],
    [{ name: "web", command: ["x"], keep_alive: "yes" }, /^keep_alive: must be a boolean/],
  ])("%j is refused before the session is looked up", async (body, message) => {
    const answer = await ask("POST ", body, "a".repeat(21));
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });

  test("a start whose answer breaks off is not called retryable, and is not made again", async () => {
    control.node.onGuest = (call) => call.breakOff();
    const answer = await ask("POST ", { name: "web", command: ["x"] });
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(calls()).toHaveLength(1);
  });
});

describe("list and get", () => {
  test("a list is in the guest's order, running and exited; the key is there when it is empty", async () => {
    expect((await ask("GET ")).body).toEqual({ processes: [] });
    answers({ processes: [{ ...EXITED, name: "old", exit_code: 143 }, RUNNING] });
    expect((await ask("GET ")).body).toEqual({
      processes: [
        { ...INFO, name: "old", state: "exited", exit_code: 143, ended_at: "2027-03-01T09:30:01.125Z" },
        INFO,
      ],
    });
  });

  test("an exit code of 0 is shown, and what a running one claims about its end is not", async () => {
    answers(EXITED);
    expect((await ask("GET /web")).body).toMatchObject({ state: "exited", exit_code: 0 });
    answers({ ...EXITED, state: "running" });
    expect((await ask("GET /web")).body).toEqual(INFO);
    expect(calls()).toEqual(["GET processes/web", "GET processes/web"]);
  });

  test("a machine whose clock is set to anything is shown all the same", async () => {
    answers({ ...RUNNING, started_at_ms: Number.MAX_SAFE_INTEGER });
    expect((await ask("GET /web")).body.started_at).toBe("9999-12-31T23:59:59.999Z");
  });

  test.each([
    ["GET", ""],
    ["DELETE", ""],
    ["GET", "/logs"],
    ["GET", "/logs?follow=true"],
  ])("%s /nobody%s is 404 with the name in the message", async (method, rest) => {
    refuses("process_not_found");
    const { status, body } = await ask(`${method} /nobody${rest}`);
    expect([status, body]).toEqual([
      404,
      { error: "name: no process of this name: nobody", code: "not_found" },
    ]);
  });

  test.each([
    ["GET", "", ""],
    ["DELETE", "", ""],
    ["GET", "", "/logs"],
    ["GET", "", "/logs?follow=true"],
  ])("%s of a name that none can have is 404, without waking the session", async (method, _, rest) => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    const { status, body } = await ask(`${method} /No%2fBody${rest}`, undefined, paused);
    expect([status, body]).toEqual([
      404,
      { error: "name: no process of this name: No/Body", code: "not_found" },
    ]);
    expect((await control.ask(`GET /v1/sessions/${paused}`)).body.state).toBe("paused");
    const foreign = await ask(`${method} /No${rest}`, undefined, "b".repeat(21));
    expect([foreign.status, foreign.body.error]).toEqual([404, expect.stringMatching(/^session not found/)]);
  });

  test.each([["GET "], ["GET /web"], ["GET /web/logs"]])("%s of a paused session wakes it", async (call) => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    control.node.onGuest = (guest) => {
      if (guest.call.endsWith("/logs")) guest.output().eof();
      else guest.json(guest.call === "GET processes" ? { processes: [] } : RUNNING);
    };
    expect((await ask(call, undefined, paused)).status).toBe(200);
    expect((await control.ask(`GET /v1/sessions/${paused}`)).body.state).toBe("live");
  });

  test("an answer that does not fit the contract is 502", async () => {
    answers({ processes: [{ ...RUNNING, exit_code: 2 ** 40 }] });
    const { status, body } = await ask("GET ");
    expect([status, body.code]).toEqual([502, "bad_gateway"]);
  });
});

describe("end", () => {
  test("answers with the final entry", async () => {
    answers({ ...EXITED, exit_code: 143 });
    const { status, body } = await ask("DELETE /web");
    expect([status, body]).toEqual([
      200,
      { ...INFO, state: "exited", exit_code: 143, ended_at: "2027-03-01T09:30:01.125Z" },
    ]);
    expect(calls()).toEqual(["DELETE processes/web"]);
  });

  test("an answer that breaks off may be asked for again: ending twice is ending once", async () => {
    control.node.onGuest = (call) => call.breakOff();
    const { status, body } = await ask("DELETE /web");
    expect([status, body.code]).toEqual([503, "session_unavailable"]);
  });
});

test("destroy_on_completion is about commands: a process that exits destroys nothing", async () => {
  const once = await control.createLive({ destroy_on_completion: true });
  answers(EXITED);
  expect((await ask("POST ", { name: "web", command: ["true"] }, once)).status).toBe(200);
  expect((await ask("GET /web", undefined, once)).status).toBe(200);
  expect((await control.ask(`GET /v1/sessions/${once}`)).body.state).toBe("live");
});
