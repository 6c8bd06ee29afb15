import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, test } from "vitest";
import { bodyOf, json, serve } from "../test-support/server.ts";

const PROCESSES = "/v1/sessions/s1/processes";
const running = {
  name: "web",
  pid: 7,
  command: ["sleep", "9"],
  state: "running",
  keep_alive: false,
  started_at: "2027-03-01T09:30:00.125Z",
};
const exited = { ...running, state: "exited", exit_code: 143, ended_at: running.started_at };

/** Answers a follow with these events, everything else with the exited process. */
async function serveLog(events: string, end = true) {
  return await serve((request, response) => {
    if (!request.url?.includes("/logs")) return json(response, exited);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(events);
    if (end) response.end();
  });
}

test("every operation sends what the interface says and returns its answer", async () => {
  const seen: unknown[] = [];
  const { session } = await serve(async (request, response) => {
    const body = (await bodyOf(request)).toString();
    seen.push([request.method, request.url, ...(body === "" ? [] : [JSON.parse(body)])]);
    json(response, request.method === "DELETE" ? exited : running);
  });
  const { processes } = session;
  const request = { name: "web", command: ["sleep", "9"], cwd: "/tmp", keep_alive: true };
  expect(await processes.start(request)).toEqual(running);
  await processes.list();
  expect(await processes.get("web")).toEqual(running);
  await processes.logs("web");
  expect(await processes.kill("web")).toEqual(exited);
  expect(seen).toEqual([
    ["POST", PROCESSES, request],
    ["GET", PROCESSES],
    ["GET", `${PROCESSES}/web`],
    ["GET", `${PROCESSES}/web/logs`],
    ["DELETE", `${PROCESSES}/web`],
  ]);
});

test("a start is never sent twice after a lost connection, reads and kill are", async () => {
  let requests = 0;
  const { session } = await serve((request) => {
    requests++;
    request.socket.destroy();
  });
  const lost = { code: "connection_failed" };
  await expect(session.processes.start({ name: "a", command: ["b"] })).rejects.toMatchObject(lost);
  expect(requests).toBe(1);
  await expect(session.processes.get("a")).rejects.toMatchObject(lost);
  expect(requests).toBe(5);
  await expect(session.processes.kill("a")).rejects.toMatchObject(lost);
  expect(requests).toBe(9);
});

test("a log is followed as bytes, until its eof", async () => {
  const { session } = await serveLog(
    "event: stdout\ndata: aGk=\n\n: hb\n\nevent: stderr\ndata: /w==\n\nevent: eof\ndata: \n\n",
    false,
  );
  const chunks = await Array.fromAsync(session.processes.followLogs("web"));
  expect(chunks.map(({ stream, data }) => [stream, ...data])).toEqual([
    ["stdout", 104, 105],
    ["stderr", 255],
  ]);
});

test("an error event, and an end without eof, are errors that differ", async () => {
  const paused = await serveLog(
    "event: stdout\ndata: aGk=\n\nevent: error\ndata: the session was paused\n\n",
  );
  await expect(Array.fromAsync(paused.session.processes.followLogs("web"))).rejects.toMatchObject({
    code: "log_failed",
    message: "the session was paused",
    retryable: false,
  });
  const broken = await serveLog("event: stdout\ndata: aGk=\n\n");
  await expect(Array.fromAsync(broken.session.processes.followLogs("web"))).rejects.toMatchObject({
    code: "stream_interrupted",
    retryable: true,
  });
});

test("waitForExit follows the log to its end and returns how the process ended", async () => {
  const { session } = await serveLog("event: stdout\ndata: aGk=\n\nevent: eof\ndata: \n\n");
  expect(await session.processes.waitForExit("web", { timeoutMs: 10_000 * SLOWNESS })).toEqual(exited);
});

test.each([2 ** 31, 2 ** 40, Number.POSITIVE_INFINITY])(
  "waitForExit waits also for %d ms",
  async (timeoutMs) => {
    const { session } = await serveLog("event: stdout\ndata: aGk=\n\n", false);
    const signal = AbortSignal.timeout(200);
    await expect(session.processes.waitForExit("web", { signal, timeoutMs })).rejects.toMatchObject({
      name: "TimeoutError",
    });
  },
);

test("waitForExit gives up after its time limit, and when aborted", async () => {
  const { session } = await serveLog("event: stdout\ndata: aGk=\n\n", false);
  await expect(session.processes.waitForExit("web", { timeoutMs: 100 })).rejects.toMatchObject({
    code: "wait_timeout",
  });
  const signal = AbortSignal.timeout(100);
  await expect(session.processes.waitForExit("web", { signal })).rejects.toMatchObject({
    name: "TimeoutError",
  });
});
