/** Named processes (docs/spec/processes.md), each rule against a real machine. */
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";
import { servicePid } from "../support/service.ts";

/** More than the kept size. */
const LARGE_MIB = size({ ci: 12, full: 100 });

let id: string;
beforeAll(async () => {
  id = (await client.sessions.create({ env: { GREETING: "hi" } })).session_id;
  await client.sessions.waitUntilLive(id);
});
afterAll(async () => {
  await ask(`/v1/sessions/${id}`, { method: "DELETE" });
});

const path = (rest = "", session = id) => `/v1/sessions/${session}/processes${rest}`;
const start = (name: string, script: string, more: object = {}, session = id) =>
  ask(path("", session), { method: "POST", body: { name, command: sh(script), ...more } });
const get = async (name: string, session = id) => (await ask(path(`/${name}`, session))).body;
const end = (name: string) => ask(path(`/${name}`), { method: "DELETE" });
const logs = async (name: string) => (await ask(path(`/${name}/logs`))).body;
const untilExited = (name: string, session = id, withinMs = 60_000) =>
  eventually(async () => {
    const process = await get(name, session);
    expect(process.state).toBe("exited");
    return process;
  }, withinMs);
const follow = async (name: string, session = id) => await (await beginToFollow(name, session)).events;
/** Resolves with the first events; those of the whole stream come at its end. */
async function beginToFollow(name: string, session = id): Promise<{ events: Promise<string> }> {
  const headers = { authorization: `Bearer ${service.apiKey}` };
  const answer = await fetch(`${service.url}${path(`/${name}/logs?follow=true`, session)}`, { headers });
  expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const chunks = (answer.body as ReadableStream<Uint8Array>)[Symbol.asyncIterator]();
  const first = await chunks.next();
  const rest = async () => {
    const read = [Buffer.from(first.value ?? "")];
    for await (const chunk of { [Symbol.asyncIterator]: () => chunks }) read.push(Buffer.from(chunk));
    return Buffer.concat(read).toString().replaceAll(": hb\n\n", "");
  };
  return { events: rest() };
}
const outputOf = (events: string) =>
  [...events.matchAll(/event: stdout\ndata: (.*)\n\n/g)]
    .map(([, data]) => Buffer.from(data ?? "", "base64"))
    .join("");

describe("start", () => {
  test("it outlives the request, as a session leader with the session's environment", async () => {
    const { status, body } = await start(
      "first",
      "echo $GREETING $VIVARIUM_SESSION_ID; pwd; ps -o sid= -p $$; sleep 600",
    );
    expect(status).toBe(200);
    expect(body).toMatchObject({ name: "first", state: "running", keep_alive: false });
    expect(body).not.toHaveProperty("exit_code");
    await eventually(async () => {
      const lines = String((await logs("first")).stdout).split("\n");
      expect(lines.slice(0, 2)).toEqual([`hi ${id}`, "/workspace"]);
      expect(Number(lines[2])).toBe(body.pid);
    });
  });
});

describe("end", () => {
  test("SIGTERM ends it with 143, and the answer waits for that", async () => {
    await start("term", "sleep 600");
    const { status, body } = await end("term");
    expect([status, body.state, body.exit_code]).toEqual([200, "exited", 143]);
    expect(await end("term")).toMatchObject({ status: 200, body });
  });

  test("a process that ignores SIGTERM is killed with its grandchildren: 137", {
    timeout: 300_000 * SLOWNESS,
  }, async () => {
    await start("stubborn", "trap '' TERM; (trap '' TERM; setsid sleep 4321) & while :; do sleep 1; done");
    await eventually(async () => {
      const { stdout } = await client.sessions.exec(id, { command: ["pgrep", "-xf", "sleep 4321"] });
      expect(stdout).not.toBe("");
    });
    expect((await end("stubborn")).body).toMatchObject({ state: "exited", exit_code: 137 });
    const { stdout } = await client.sessions.exec(id, {
      command: sh("pgrep -x sleep -a | grep 4321 || true"),
    });
    expect(stdout).toBe("");
  });
});

describe("logs", () => {
  test("both streams come buffered, and as base64 where they are no UTF-8", async () => {
    await start("both", "printf 'out\\n'; printf '\\377' >&2");
    await untilExited("both");
    expect(await logs("both")).toEqual({
      name: "both",
      stdout: "out\n",
      stderr: "/w==",
      stderr_encoding: "base64",
    });
  });

  test(`of ${LARGE_MIB} MiB the last 4 MiB are read, and the last 10 MiB survive`, {
    timeout: 600_000 * SLOWNESS,
  }, async () => {
    await start("much", `head -c ${LARGE_MIB}M /dev/zero | tr '\\0' x; echo; echo end`);
    await untilExited("much", id, 300_000);
    const body = await logs("much");
    expect(body.truncated).toBe(true);
    expect(String(body.stdout).length).toBe(4 * 2 ** 20);
    expect(String(body.stdout).endsWith("x\nend\n")).toBe(true);
    const events = await follow("much");
    expect(events.endsWith("event: eof\ndata: \n\n")).toBe(true);
    expect(outputOf(events).length).toBeLessThanOrEqual(10 * 2 ** 20);
    expect(outputOf(events).endsWith("x\nend\n")).toBe(true);
  });

  test("follow replays, follows, and ends with one eof once it has exited", async () => {
    await start("slow", "for i in 1 2 3; do echo $i; sleep 0.3; done");
    const events = await follow("slow");
    expect(outputOf(events)).toBe("1\n2\n3\n");
    expect(events.match(/event: (eof|error)/g)).toEqual(["event: eof"]);
    expect(await follow("slow")).toBe(`event: stdout\ndata: ${btoa("1\n2\n3\n")}\n\nevent: eof\ndata: \n\n`);
  });

  test("leaving a follow leaves the process alone", async () => {
    await start("left", "while :; do echo x; sleep 0.1; done");
    const leaving = new AbortController();
    const headers = { authorization: `Bearer ${service.apiKey}` };
    const url = `${service.url}${path("/left/logs?follow=true")}`;
    const answer = await fetch(url, { headers, signal: leaving.signal });
    await answer.body?.getReader().read();
    leaving.abort();
    expect((await get("left")).state).toBe("running");
    await end("left");
  });
});

describe("the life of the session", () => {
  test("processes continue after a pause, a wake and in forks", { timeout: 300_000 * SLOWNESS }, async () => {
    await withSession(async (session) => {
      const { body: before } = await start(
        "count",
        "i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done",
        {},
        session,
      );
      // A follow that came after the pause would wake the session.
      const running = await beginToFollow("count", session);
      await ask(`/v1/sessions/${session}/pause`, { method: "POST" });
      expect(await running.events).toMatch(/event: error\ndata: [^\n]*paused/);
      const after = await get("count", session);
      expect([after.state, after.pid, after.started_at]).toEqual(["running", before.pid, before.started_at]);
      const fork = await ask(`/v1/sessions/${session}/fork`, { method: "POST", body: { count: 1 } });
      const child = (fork.body.children as string[])[0] as string;
      expect(await get("count", child)).toMatchObject({ state: "running", pid: before.pid });
      await ask(`/v1/sessions/${child}`, { method: "DELETE" });
    });
  });

  test.each(["node", "control"] as const)(
    "a kill -9 of %s leaves them running, and nothing is missing in their logs",
    { timeout: 300_000 * SLOWNESS },
    async (daemon) => {
      const name = `through-${daemon}`;
      const script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done";
      const { body: before } = await start(name, script);
      process.kill(servicePid(service, daemon), "SIGKILL");
      await eventually(async () => {
        const { status, body } = await ask(path(`/${name}`));
        expect([status, body.state, body.pid]).toEqual([200, "running", before.pid]);
      }, 120_000);
      const atLeast = Number(
        String((await logs(name)).stdout)
          .trimEnd()
          .split("\n")
          .at(-1),
      );
      await eventually(async () => {
        const lines = String((await logs(name)).stdout)
          .trimEnd()
          .split("\n");
        expect(lines).toEqual(lines.map((_, index) => String(index + 1)));
        expect(lines.length).toBeGreaterThan(atLeast);
      });
      await end(name);
    },
  );

  test("keep_alive keeps the session awake until it ends", { timeout: 300_000 * SLOWNESS }, async () => {
    await withSession(
      async (session) => {
        const state = async () => (await ask(`/v1/sessions/${session}`)).body.state;
        await start("keeper", "until [ -e go ]; do sleep 0.2; done", { keep_alive: true }, session);
        await sleep(6_000);
        expect(await state()).toBe("live");
        await client.session(session).files.write("go", "");
        await eventually(async () => expect(await state()).toBe("paused"), 60_000);
      },
      { idle_timeout_ms: 2_000 },
    );
  });
});
