/** The end of a command's answer under every fault: its exit once, or an error, never a made-up exit. */
import { request } from "node:http";
import type { AddressInfo } from "node:net";
import { encodeFrame, FRAME } from "@vivarium/contract/guest";
import type { Output } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { DatabaseLine } from "../../test-support/database-line.ts";
import { createApp } from "../app.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
});
afterEach(async () => {
  control.node.onExec = (_call, output) => output().exit();
  await control.destroyAll();
});
afterAll(() => control.close());

const END = { timed_out: false, duration_us: 1, stdout_truncated: false, stderr_truncated: false };
const exitFrame = (end: object) => encodeFrame(FRAME.exit, JSON.stringify({ ...END, ...end }));
const lastEvents = (text: string) => [...text.matchAll(/^event: (exit|error)$/gm)].map(([, type]) => type);

const FAULTS: [title: string, fault: (out: Output, id: string) => unknown][] = [
  ["the agent loses the command", (out) => out.error("lost")],
  ["the output breaks off", (out) => out.breakOff()],
  ["the output ends without an exit", (out) => out.endWithoutExit()],
  ["a frame has an unknown type", (out) => out.raw(Buffer.from([0x7f, 0, 0, 0, 0]))],
  ["a frame is too long", (out) => out.raw(Buffer.from([1, 0xff, 0xff, 0xff, 0xff]))],
  ["a frame is cut short", (out) => out.endWith(Buffer.from([1, 0, 0, 0, 9, 65]))],
  ["the exit is no JSON", (out) => out.raw(encodeFrame(FRAME.exit, "{"))],
  ["the exit has no code", (out) => out.raw(exitFrame({}))],
  ["the exit's code is out of range", (out) => out.raw(exitFrame({ exit_code: 2 ** 40 }))],
  [
    "the session is destroyed",
    (_out, id) => control.ask(`DELETE /v1/sessions/${id}`).then(() => control.node.restart()),
  ],
  [
    "the session is paused",
    (_out, id) => control.ask(`POST /v1/sessions/${id}/pause`).then(() => control.node.restart()),
  ],
  ["the node restarts", () => control.node.restart()],
];

describe.each(FAULTS)("when %s", (_title, fault) => {
  const begin = (id: string) => {
    control.node.onExec = (_call, output) => {
      const out = output();
      out.stdout("x");
      setTimeout(() => void fault(out, id), 30);
    };
  };

  test("a stream ends with one error, after its output", async () => {
    const id = await control.createLive();
    begin(id);
    const { status, text } = await control.ask(`POST /v1/sessions/${id}/exec?stream=true`, {
      body: { command: ["x"] },
    });
    expect(status).toBe(200);
    expect(text.startsWith("event: stdout\ndata: eA==\n\n")).toBe(true);
    expect(lastEvents(text)).toEqual(["error"]);
    expect(text).toMatch(/event: error\ndata: [^\n{]+\n\n$/);
  });

  test("a buffered answer is an error that does not ask for another try", async () => {
    const id = await control.createLive();
    begin(id);
    const answer = await control.exec(id);
    expect([409, 410, 500]).toContain(answer.status);
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(control.node.execs.filter(({ machineId }) => machineId.startsWith(id))).toHaveLength(1);
  });
});

describe("when the output breaks off while the database is away", () => {
  let line: DatabaseLine;
  let as: Control;
  beforeEach(async () => {
    line = new DatabaseLine(control.settings.databaseUrl);
    await line.restore();
    const app = await createApp({ ...control.settings, databaseUrl: line.url }, silentLog);
    as = Object.assign(Object.create(control), { app });
    control.node.onExec = async (_call, output) => {
      const out = output();
      out.stdout("x");
      await line.sever();
      out.breakOff();
    };
  });
  afterEach(async () => {
    await as.app.close();
    await line.close();
  });

  test("a stream ends with one error all the same", async () => {
    const id = await control.createLive();
    const { text } = await as.ask(`POST /v1/sessions/${id}/exec?stream=true`, { body: { command: ["x"] } });
    expect(lastEvents(text)).toEqual(["error"]);
    expect(text).toContain("how it ended is unknown");
  });

  test("a buffered answer does not ask for another try: the command had started", async () => {
    const id = await control.createLive();
    const answer = await as.exec(id);
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
  });

  test("code whose start was not confirmed is not called retryable either", async () => {
    control.node.onExec = async () => {
      await line.sever();
      await control.node.restart();
    };
    const answer = await as.ask("POST /v1/sessions/exec", { body: { language: "python", code: "1" } });
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
  });
});

test("output after an exit is dropped", async () => {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => {
    const out = output();
    out.raw(
      Buffer.concat([
        exitFrame({ exit_code: 0 }),
        encodeFrame(FRAME.stdout, "late"),
        exitFrame({ exit_code: 1 }),
      ]),
    );
    out.endWithoutExit();
  };
  const { text } = await control.ask(`POST /v1/sessions/${id}/exec?stream=true`, {
    body: { command: ["x"] },
  });
  expect(text).toBe('event: exit\ndata: {"exit_code":0,"timed_out":false,"duration_ms":0}\n\n');
});

test("a timeout is an exit of -1 that says so, in a stream and in a buffered answer", async () => {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => output().exit(-1, { timed_out: true });
  const { text } = await control.ask(`POST /v1/sessions/${id}/exec?stream=true`, {
    body: { command: ["x"] },
  });
  expect(text).toContain('data: {"exit_code":-1,"timed_out":true,');
  expect((await control.exec(id)).body).toMatchObject({ exit_code: -1, timed_out: true });
});

test("within a second after the client leaves, the node is asked to kill the command, also a silent one", async () => {
  const id = await control.createLive();
  let isGone = false;
  const { promise: started, resolve: start } = Promise.withResolvers<void>();
  control.node.onExec = async (_call, output) => {
    const out = output();
    start();
    await out.gone;
    isGone = true;
  };
  const { port } = control.app.server.server.address() as AddressInfo;
  const call = request({
    port,
    method: "POST",
    path: `/v1/sessions/${id}/exec?stream=true`,
    headers: { authorization: `Bearer ${control.key}` },
  });
  call.on("error", () => {});
  call.end(JSON.stringify({ command: ["sleep", "600"] }));
  await started;
  call.destroy();
  await eventually(() => expect(isGone).toBe(true), 1_000);
});
