import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { listenForMetrics } from "./listen.ts";

let control: Control;
let metrics: Awaited<ReturnType<typeof listenForMetrics>>;
beforeAll(async () => {
  control = await startControl();
  metrics = await listenForMetrics(
    { meter: control.app.meter, log: silentLog },
    { host: "127.0.0.1", port: 0 },
  );
});
afterAll(async () => {
  await metrics.close();
  await control.close();
});

const ask = (path: string, method = "GET") => fetch(`http://127.0.0.1:${metrics.port}${path}`, { method });

/** By the line's name and labels, as written. */
async function read(): Promise<Map<string, number>> {
  const lines = (await (await ask("/metrics")).text()).split("\n").filter((line) => !/^(#|$)/.test(line));
  return new Map(lines.map((line) => [line.replace(/ [^ ]+$/, ""), Number(line.split(" ").at(-1))]));
}

const took = (operation: string, stage: string) =>
  `vivarium_operation_stage_seconds_count{operation="${operation}",stage="${stage}"}`;

test("durations of operations are counted by stage", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.ask(`POST /v1/sessions/${id}/resume`);
  const { body } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: body.checkpoint_id } });
  await control.ask(`POST /v1/sessions/${id}/templates`, { body: { name: "t" } });
  await control.ask(`POST /v1/sessions/${id}/fork`, { body: { count: 2 } });
  const found = await read();
  for (const operation of ["create", "pause", "wake", "checkpoint", "restore", "template", "fork"])
    expect([operation, found.get(took(operation, "total"))]).toEqual([operation, 1]);
  expect(found.get(took("wake", "place"))).toBe(1);
  await control.ask(`POST /v1/checkpoints/${body.checkpoint_id}/sessions`);
  expect((await read()).get(took("create", "total"))).toBe(2);
  await control.destroyAll();
});

test("answers are counted by route and status, never by what was asked for", async () => {
  await control.ask("GET /v1/sessions/not-there");
  await control.ask("GET /nowhere?token=geheim");
  const counts = [...(await read())].filter(([name]) =>
    name.startsWith("vivarium_http_request_seconds_count"),
  );
  const text = JSON.stringify(counts);
  expect(text).toContain('route=\\"/v1/sessions/:id\\",status=\\"404\\"');
  expect(text).toContain('route=\\"(no route)\\",status=\\"404\\"');
  for (const secret of ["not-there", "nowhere", "geheim"]) expect(text).not.toContain(secret);
});

test("a request whose client leaves is counted as left", async () => {
  const id = await control.createLive();
  control.node.onExec = (_call, output) => void output().stdout("on");
  const leaving = new AbortController();
  const path = `/v1/sessions/${id}/exec?stream=true`;
  const headers = { authorization: `Bearer ${control.key}`, "content-type": "application/json" };
  const { port } = new URL(await control.app.server.listen({ host: "127.0.0.1", port: 0 }));
  const asked = fetch(`http://127.0.0.1:${port}${path}`, {
    method: "POST",
    headers,
    body: JSON.stringify({ command: ["x"] }),
    signal: leaving.signal,
  });
  await asked;
  leaving.abort();
  const line =
    'vivarium_http_request_seconds_count{method="POST",route="/v1/sessions/:id/exec",status="left"}';
  await expect.poll(async () => (await read()).get(line)).toBe(1);
  await control.destroyAll();
});

test("a node that is away has no figures", async () => {
  const up = async () => (await read()).get("vivarium_node_up");
  await expect.poll(up).toBe(1);
  await control.node.goDown();
  await expect.poll(up).toBe(0);
  expect((await read()).get('vivarium_node_disk_bytes{of="free"}')).toBeUndefined();
  await control.node.listen();
});

test("sessions by state, machines that wait and the pool's disk are as they are when one looks", async () => {
  const whole = control.node.info;
  const base = { template: "base", size: "small", ready: 1, wanted: 3 };
  control.node.info = {
    ...whole,
    new_machines: { from_pool: 9, loaded: 1 },
    warm: [base, { ...base, snapshot_id: "a" }, { ...base, snapshot_id: "b" }],
  };
  const id = await control.createLive();
  await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await expect
    .poll(async () => (await read()).get('vivarium_warm_machines{kind="saved",template="base",size="small"}'))
    .toBe(2);
  const found = await read();
  const sessions = (state: string) => found.get(`vivarium_sessions{state="${state}"}`);
  expect([sessions("live"), sessions("paused"), sessions("creating")]).toEqual([1, 1, 0]);
  expect(found.get('vivarium_warm_machines{kind="baseline",template="base",size="small"}')).toBe(1);
  const wanted = (kind: string) =>
    found.get(`vivarium_warm_machines_wanted{kind="${kind}",template="base",size="small"}`);
  expect([wanted("baseline"), wanted("saved")]).toEqual([3, 6]);
  const started = (from: string) => found.get(`vivarium_new_machines_total{from="${from}"}`);
  expect([started("pool"), started("load")]).toEqual([9, 1]);
  expect(found.get('vivarium_node_disk_bytes{of="free"}')).toBe(whole.disk.free_bytes);
  expect(found.get('vivarium_jobs{kind="artifact_capture",state="active"}')).toBe(0);
  expect(found.get('vivarium_archives{kind="pause",state="failed"}')).toBe(0);
  expect(found.get('vivarium_archive_uploads_total{outcome="failed"}')).toBe(0);
  expect(found.get('vivarium_template_builds{state="queued"}')).toBe(0);
  expect(found.get("process_cpu_seconds_total")).toBeGreaterThan(0);
  control.node.info = whole;
  await control.destroyAll();
});

test("no other path exists, and the public interface has no metrics", async () => {
  expect([(await ask("/")).status, (await ask("/metrics", "POST")).status]).toEqual([404, 405]);
  expect((await control.ask("GET /metrics")).status).toBe(404);
});
