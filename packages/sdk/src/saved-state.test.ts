import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Client } from "./client.ts";

interface Seen {
  request: string;
  body: unknown;
}
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(answer: (seen: Seen, response: ServerResponse, count: number) => void) {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    const entry = { request: `${request.method} ${request.url}`, body: text && JSON.parse(text) };
    seen.push(entry);
    answer(entry, response, seen.length);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const waits: number[] = [];
  const client = new Client({ url, apiKey: "viv_test", sleep: async (ms) => void waits.push(ms) });
  return { client, seen, waits };
}

function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

const at = "2027-03-01T09:30:00.125Z";
const record = { session_id: "s", state: "live", created_at: at, last_active_at: at, size: "small" };
const checkpoint = {
  checkpoint_id: "chk_1",
  parent_session_id: "s",
  session_id: "s",
  size_bytes: 7,
  created_at: at,
};
const template = { name: "t", kind: "user", created_at: at, status: "ready", versions: ["1"], memory: true };

test("the verbs of a session send what the interface says and return its answers", async () => {
  const { client, seen } = await serve(({ request }, response) =>
    json(response, 200, request.includes("fork") ? { parent_session_id: "s", children: ["c"] } : record),
  );
  expect(await client.sessions.pause("s")).toEqual(record);
  await client.sessions.pause("s", { wakeAt: new Date(at) });
  await client.sessions.pause("s", { wakeAt: "2027-03-01T10:30:00+01:00" }, { timing: true });
  expect(await client.sessions.resume("s", { timing: true })).toEqual(record);
  await client.sessions.retryArchive("s");
  expect(await client.sessions.fork("s", { count: 3 })).toEqual({ parent_session_id: "s", children: ["c"] });
  await client.sessions.fork("s");
  expect(await client.sessions.restore("s", "chk_1")).toEqual(record);
  expect(seen).toEqual([
    { request: "POST /v1/sessions/s/pause", body: {} },
    { request: "POST /v1/sessions/s/pause", body: { wake_at: at } },
    { request: "POST /v1/sessions/s/pause?timing=true", body: { wake_at: "2027-03-01T10:30:00+01:00" } },
    { request: "POST /v1/sessions/s/resume?timing=true", body: {} },
    { request: "POST /v1/sessions/s/archive/retry", body: {} },
    { request: "POST /v1/sessions/s/fork", body: { count: 3 } },
    { request: "POST /v1/sessions/s/fork", body: {} },
    { request: "POST /v1/sessions/s/restore", body: { checkpoint_id: "chk_1" } },
  ]);
});

test("checkpoints are made, read, listed, started and deleted", async () => {
  const { client, seen } = await serve(({ request }, response) => {
    if (request.startsWith("DELETE")) response.writeHead(204).end();
    else if (request.endsWith("/sessions")) json(response, 200, record);
    else if (request === "GET /v1/sessions/s/checkpoints") json(response, 200, { checkpoints: [checkpoint] });
    else json(response, 200, checkpoint);
  });
  expect(await client.checkpoints.create("s", { name: "n", labels: { k: "v" } })).toEqual(checkpoint);
  expect(await client.checkpoints.list("s")).toEqual({ checkpoints: [checkpoint] });
  expect(await client.checkpoints.get("chk_1")).toEqual(checkpoint);
  expect(await client.checkpoints.start("chk_1", { name: "two", idle_timeout_ms: 5000 })).toEqual(record);
  expect(await client.checkpoints.delete("chk_1")).toBeUndefined();
  expect(seen).toEqual([
    { request: "POST /v1/sessions/s/checkpoints", body: { name: "n", labels: { k: "v" } } },
    { request: "GET /v1/sessions/s/checkpoints", body: "" },
    { request: "GET /v1/checkpoints/chk_1", body: "" },
    { request: "POST /v1/checkpoints/chk_1/sessions", body: { name: "two", idle_timeout_ms: 5000 } },
    { request: "DELETE /v1/checkpoints/chk_1", body: "" },
  ]);
});

test("all checkpoints of the organisation are listed page after page", async () => {
  const { client, seen } = await serve(({ request }, response) =>
    json(
      response,
      200,
      request.includes("cursor")
        ? { checkpoints: [{ ...checkpoint, checkpoint_id: "chk_2" }] }
        : { checkpoints: [checkpoint], next_cursor: "more" },
    ),
  );
  const all = await Array.fromAsync(client.checkpoints.all({ sessionId: "s", pageSize: 1 }));
  expect(all.map((each) => each.checkpoint_id)).toEqual(["chk_1", "chk_2"]);
  expect(seen.map((each) => each.request)).toEqual([
    "GET /v1/checkpoints?session_id=s&limit=1",
    "GET /v1/checkpoints?session_id=s&limit=1&cursor=more",
  ]);
});

test("templates are saved, read, listed and deleted, a version by name@version", async () => {
  const { client, seen } = await serve(({ request }, response) => {
    if (request.startsWith("DELETE")) response.writeHead(204).end();
    else json(response, 200, request === "GET /v1/templates" ? { templates: [template] } : template);
  });
  expect(await client.templates.save("s", { name: "t", description: "mine" })).toEqual(template);
  expect(await client.templates.list()).toEqual({ templates: [template] });
  expect(await client.templates.get("t@1")).toEqual(template);
  expect(await client.templates.delete("t")).toBeUndefined();
  expect(seen).toEqual([
    { request: "POST /v1/sessions/s/templates", body: { name: "t", description: "mine" } },
    { request: "GET /v1/templates", body: "" },
    { request: "GET /v1/templates/t%401", body: "" },
    { request: "DELETE /v1/templates/t", body: "" },
  ]);
});

test("a create says what it starts from and how long it lives, and asks for timings", async () => {
  const { client, seen } = await serve((_seen, response) => json(response, 200, record));
  await client.sessions.create(
    {
      from_checkpoint: "chk_1",
      idle_timeout_ms: 60_000,
      max_lifetime_ms: 3_600_000,
      paused_ttl_ms: 86_400_000,
    },
    { timing: true },
  );
  await client.sessions.create({ template: "t@1", paused_ttl_ms: -1 });
  await client.sessions.waitUntilLive("s", { timing: true });
  expect(seen).toEqual([
    {
      request: "POST /v1/sessions?timing=true",
      body: {
        from_checkpoint: "chk_1",
        idle_timeout_ms: 60_000,
        max_lifetime_ms: 3_600_000,
        paused_ttl_ms: 86_400_000,
      },
    },
    { request: "POST /v1/sessions", body: { template: "t@1", paused_ttl_ms: -1 } },
    { request: "GET /v1/sessions/s?timing=true", body: "" },
  ]);
});

test("a call that would make a second thing is not sent twice when the connection breaks; other calls are", async () => {
  const { client, seen } = await serve((_seen, response) => response.destroy());
  const calls: Record<string, () => Promise<unknown>> = {
    pause: () => client.sessions.pause("s"),
    resume: () => client.sessions.resume("s"),
    fork: () => client.sessions.fork("s"),
    restore: () => client.sessions.restore("s", "chk_1"),
    checkpoint: () => client.checkpoints.create("s"),
    start: () => client.checkpoints.start("chk_1"),
    list: () => client.checkpoints.list("s"),
    save: () => client.templates.save("s", { name: "t" }),
  };
  const sent: Record<string, number> = {};
  for (const [name, call] of Object.entries(calls)) {
    seen.length = 0;
    await expect(call()).rejects.toMatchObject({ code: "connection_failed" });
    sent[name] = seen.length;
  }
  expect(sent).toEqual({
    pause: 4,
    resume: 4,
    fork: 1,
    restore: 1,
    checkpoint: 1,
    start: 1,
    list: 4,
    save: 1,
  });
});

test("a fork that the service put off is sent again, for it has not begun", async () => {
  const { client, waits } = await serve((_seen, response, count) => {
    if (count === 1)
      json(response, 503, { error: "no disk", code: "node_disk_pressure" }, { "retry-after": "30" });
    else json(response, 200, { parent_session_id: "s", children: ["c"] });
  });
  expect((await client.sessions.fork("s")).children).toEqual(["c"]);
  expect(waits).toEqual([30_000]);
});

test("a session past its lifetime refuses with its code and for good", async () => {
  const { client, seen } = await serve((_seen, response) =>
    json(response, 410, { error: "the session's lifetime is over", code: "session_ended" }),
  );
  await expect(client.sessions.resume("s")).rejects.toMatchObject({
    code: "session_ended",
    status: 410,
    retryable: false,
  });
  expect(seen).toHaveLength(1);
});

test("an import is sent once, and the log is that of a version", async () => {
  const { client, seen } = await serve(({ request }, response, count) => {
    if (count === 1) return response.destroy();
    json(response, 200, request.includes("/log") ? { lines: [] } : { ...template, status: "queued" });
  });
  const body = { name: "t", from_image: "debian:13" };
  await expect(client.templates.import(body)).rejects.toThrow();
  expect(await client.templates.import(body)).toMatchObject({ status: "queued" });
  expect(await client.templates.log("t@2")).toEqual({ lines: [] });
  expect(seen.map(({ request, body: sent }) => [request, sent])).toEqual([
    ["POST /v1/templates", body],
    ["POST /v1/templates", body],
    ["GET /v1/templates/t%402/log", ""],
  ]);
});
