import { request } from "node:http";
import type { AddressInfo } from "node:net";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  id = await control.createLive();
});
afterEach(() => {
  control.node.onExec = (_call, output) => output().exit();
});
afterAll(() => control.close());

const stream = (session = id) =>
  control.ask(`POST /v1/sessions/${session}/exec?stream=true`, { body: { command: ["x"] } });

test("output comes as events in the exact framing and ends with one exit", async () => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout("one\n");
    out.stderr(Buffer.from([0xff]));
    out.stdout("");
    out.exit(4);
  };
  const answer = await stream();
  expect(answer.status).toBe(200);
  expect(answer.headers).toMatchObject({
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-request-id": expect.any(String),
  });
  expect(answer.text).toBe(
    "event: stdout\ndata: b25lCg==\n\n" +
      "event: stderr\ndata: /w==\n\n" +
      'event: exit\ndata: {"exit_code":4,"timed_out":false,"duration_ms":2}\n\n',
  );
});

test("no event carries more than 32 KiB, and nothing is lost", async () => {
  const bytes = Buffer.from(Array.from({ length: 60_000 }, (_, index) => index % 251));
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout(bytes);
    out.exit(0);
  };
  const chunks = [...(await stream()).text.matchAll(/event: stdout\ndata: (.*)\n\n/g)].map(([, data]) =>
    Buffer.from(data ?? "", "base64"),
  );
  expect(chunks.map((chunk) => chunk.length)).toEqual([32_768, 60_000 - 32_768]);
  expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
});

test.each([
  ["breaks off", (out: { breakOff(): void }) => out.breakOff()],
  ["ends without an exit", (out: { endWithoutExit(): void }) => out.endWithoutExit()],
])("a command that %s ends its stream with one error, in plain text", async (_name, fault) => {
  control.node.onExec = (_call, output) => {
    const out = output();
    out.stdout("x");
    setTimeout(() => fault(out), 20);
  };
  const { status, text } = await stream();
  expect(status).toBe(200);
  expect(text).toMatch(/^event: stdout\ndata: eA==\n\nevent: error\ndata: [^\n{]+\n\n$/);
});

test("a failure before the command runs is an ordinary answer", async () => {
  control.node.onExec = () => {
    throw new Refusal("cwd_not_found");
  };
  const answer = await stream();
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.headers["content-type"]).toBe("application/json; charset=utf-8");
  expect((await stream("b".repeat(21))).status).toBe(404);
});

test("headers leave as soon as the command runs, and events as they come", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  control.node.onExec = async (_call, output) => {
    const out = output();
    await promise;
    out.stdout("late");
    out.exit(0);
  };
  const response = await fetch(`${address()}/v1/sessions/${id}/exec?stream=1`, {
    method: "POST",
    headers: { authorization: `Bearer ${control.key}` },
    body: JSON.stringify({ command: ["x"] }),
  });
  expect(response.status).toBe(200);
  resolve();
  expect(await response.text()).toContain("event: exit");
});

test("a client that goes away ends the node call, and with it the command", async () => {
  let isGone = false;
  control.node.onExec = async (_call, output) => {
    const out = output();
    out.stdout("x");
    await out.gone;
    isGone = true;
  };
  const call = openStream();
  await call.firstByte;
  call.leave();
  await eventually(() => expect(isGone).toBe(true));
});

test("a reader that stops reading stops the command's output instead of filling memory", async () => {
  let sentBytes = 0;
  control.node.onExec = async (_call, output) => {
    const out = output();
    const block = Buffer.alloc(60_000);
    let isGone = false;
    void out.gone.then(() => {
      isGone = true;
    });
    while (!isGone && sentBytes < 200_000_000) {
      sentBytes += block.length;
      if (!out.stdout(block)) await Promise.race([out.drained(), out.gone]);
    }
  };
  const call = openStream();
  await call.firstByte;
  await eventually(async () => {
    const before = sentBytes;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(sentBytes).toBe(before);
  });
  expect(sentBytes).toBeLessThan(30_000_000);
  call.leave();
});

test("destroy_on_completion applies when the stream has ended", async () => {
  const once = await control.createLive({ destroy_on_completion: true });
  expect((await stream(once)).text).toContain("event: exit");
  await eventually(async () => expect((await control.ask(`GET /v1/sessions/${once}`)).status).toBe(404));
});

function address(): string {
  return `http://127.0.0.1:${(control.app.server.server.address() as AddressInfo).port}`;
}

/** A stream whose client does not read the body before it leaves. */
function openStream(): { firstByte: Promise<void>; leave: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const call = request(`${address()}/v1/sessions/${id}/exec?stream=true`, {
    method: "POST",
    headers: { authorization: `Bearer ${control.key}` },
  });
  call.on("response", (response) => {
    response.once("readable", resolve);
    response.on("error", () => {});
  });
  call.on("error", () => {});
  call.end(JSON.stringify({ command: ["x"] }));
  return { firstByte: promise, leave: () => call.destroy() };
}
