import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Client } from "./client.ts";
import type { ExecEvent } from "./exec.ts";
import { longFetch } from "./long-fetch.ts";

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(handler: Handler) {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    handler(request, response, body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const waits: number[] = [];
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const options = { url, apiKey: "viv_test", sleep: async (ms: number) => void waits.push(ms) };
  return { client: new Client(options), options, waits };
}

function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

const exec = { command: ["true"] };

test("sends the key, the method, the path and the body of the interface", async () => {
  const seen: unknown[] = [];
  const { client } = await serve((request, response, body) => {
    seen.push([request.method, request.url, request.headers.authorization, body]);
    json(response, 200, {});
  });
  await client.run({ language: "python", code: "1" });
  await client.sessions.list({ state: "live", limit: 5, externalId: "a b" });
  expect(seen).toEqual([
    ["POST", "/v1/sessions/exec", "Bearer viv_test", '{"language":"python","code":"1"}'],
    ["GET", "/v1/sessions?state=live&limit=5&external_id=a+b", "Bearer viv_test", ""],
  ]);
});

test("retries as the service asks and keeps the idempotency key", async () => {
  const keys: unknown[] = [];
  const { client, waits } = await serve((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    if (keys.length < 3) {
      json(response, 429, { error: "full", code: "account_concurrency_exceeded" }, { "retry-after": "5" });
    } else json(response, 200, { session_id: "s" });
  });
  expect(await client.sessions.create()).toEqual({ session_id: "s" });
  expect(waits).toEqual([5000, 5000]);
  expect(new Set(keys).size).toBe(1);
});

test("gives up after the retries and throws what the service said", async () => {
  const { client, waits } = await serve((_request, response) =>
    json(
      response,
      503,
      { error: "busy", code: "unavailable" },
      { "retry-after": "1", "x-request-id": "req_9" },
    ),
  );
  await expect(client.sessions.get("x")).rejects.toMatchObject({
    code: "unavailable",
    status: 503,
    retryable: true,
    retryAfterS: 1,
    requestId: "req_9",
  });
  expect(waits).toHaveLength(3);
});

test("never sends a command twice when the connection breaks", async () => {
  let requests = 0;
  const { client } = await serve((request) => {
    requests++;
    request.socket.destroy();
  });
  await expect(client.sessions.exec("x", exec)).rejects.toMatchObject({ code: "connection_failed" });
  expect(requests).toBe(1);
  await expect(client.sessions.get("x")).rejects.toMatchObject({ code: "connection_failed" });
  expect(requests).toBe(5);
});

test.each([".", ".."])("refuses %s as an id or a name, which would lead to another path", async (name) => {
  let requests = 0;
  const { client } = await serve((_request, response) => {
    requests++;
    json(response, 200, {});
  });
  const refused = { code: "validation", status: 400 };
  await expect(client.checkpoints.start(name)).rejects.toMatchObject(refused);
  await expect(client.session("x").processes.kill(name)).rejects.toMatchObject(refused);
  await expect(client.session(name).terminal()).rejects.toMatchObject(refused);
  expect(requests).toBe(0);
});

test("a request that cannot be written is the caller's error, and is not tried again", async () => {
  const { client, waits } = await serve((_request, response) => json(response, 200, {}));
  const request = { labels: { count: 1n } } as unknown as Parameters<typeof client.sessions.create>[0];
  await expect(client.sessions.create(request)).rejects.toThrow(TypeError);
  expect(waits).toEqual([]);
});

test("an answer that breaks off is no answer: what may be asked twice is asked again", async () => {
  let requests = 0;
  const { client } = await serve((_request, response) => {
    if (++requests === 3) return json(response, 200, { sessions: [] });
    response.writeHead(200, { "content-type": "application/json", "content-length": 100 });
    response.write('{"sessions":[', () => response.destroy());
  });
  await expect(client.sessions.exec("x", exec)).rejects.toMatchObject({ code: "connection_failed" });
  expect(requests).toBe(1);
  expect(await client.sessions.list()).toEqual({ sessions: [] });
  expect(requests).toBe(3);
});

test("an abort rejects with its reason also while a refusal is being read", async () => {
  const abort = new AbortController();
  const { client } = await serve((_request, response) => {
    response.writeHead(404, { "content-type": "application/json" });
    response.write('{"error":', () => setTimeout(() => abort.abort(new Error("enough")), 50));
  });
  await expect(client.sessions.get("x", { signal: abort.signal })).rejects.toThrow("enough");
});

test("says connection_refused when nothing listens", async () => {
  const { options } = await serve(() => {});
  for (const close of closers.splice(0)) close();
  await expect(new Client({ ...options, retries: 0 }).health()).rejects.toMatchObject({
    code: "connection_refused",
  });
});

test.each([
  ["fetch", undefined],
  ["longFetch", longFetch],
])("streams output as bytes and ends with the exit, over %s", async (_name, fetch) => {
  const { options } = await serve((request, response) => {
    expect(request.url).toBe("/v1/sessions/x/exec?stream=true");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("event: stdout\ndata: aGk=\n\n: hb\n\nevent: stderr\ndata: /w==\n\n");
    response.end('event: exit\ndata: {"exit_code":3,"timed_out":false,"duration_ms":8}\n\n');
  });
  const events: ExecEvent[] = await Array.fromAsync(
    new Client({ ...options, fetch }).sessions.execStream("x", exec),
  );
  expect(events.map((event) => (event.type === "exit" ? event : [...event.data]))).toEqual([
    [104, 105],
    [255],
    { type: "exit", data: { exit_code: 3, timed_out: false, duration_ms: 8 } },
  ]);
});

test("an error event and a stream without an end are errors", async () => {
  const { client } = await serve((request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(request.url?.includes("lost") ? "" : "event: error\ndata: agent gone\n\n");
  });
  await expect(Array.fromAsync(client.sessions.execStream("a", exec))).rejects.toMatchObject({
    code: "exec_failed",
    message: "agent gone",
  });
  await expect(Array.fromAsync(client.sessions.execStream("lost", exec))).rejects.toMatchObject({
    code: "stream_interrupted",
  });
});

test.each([
  ["fetch", undefined],
  ["longFetch", longFetch],
])("leaving the loop or aborting closes the connection, over %s", async (_name, fetch) => {
  const closed: Promise<void>[] = [];
  const { options } = await serve((_request, response) => {
    closed.push(new Promise((resolve) => response.on("close", resolve)));
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("event: stdout\ndata: aGk=\n\n");
  });
  const client = new Client({ ...options, fetch });
  for await (const _event of client.sessions.execStream("x", exec)) break;
  await closed[0];
  const abort = new AbortController();
  const drain = async () => {
    for await (const _event of client.sessions.execStream("x", exec, { signal: abort.signal })) abort.abort();
  };
  await expect(drain()).rejects.toMatchObject({ name: "AbortError" });
  await closed[1];
});

test("history goes through all pages", async () => {
  const { client } = await serve((request, response) => {
    const cursor = new URL(request.url ?? "", "http://h").searchParams.get("cursor");
    json(
      response,
      200,
      cursor ? { sessions: [{ session_id: "b" }] } : { sessions: [{ session_id: "a" }], next_cursor: "2" },
    );
  });
  const ended = await Array.fromAsync(client.sessions.history());
  expect(ended.map((record) => record.session_id)).toEqual(["a", "b"]);
});

test("waitUntilLive polls until live and reports a failed start with its reason", async () => {
  const states = ["creating", "creating", "live"];
  const { client } = await serve((request, response) => {
    const failed = request.url?.endsWith("bad");
    json(response, 200, failed ? { state: "failed", status_reason: "no room" } : { state: states.shift() });
  });
  expect((await client.sessions.waitUntilLive("good")).state).toBe("live");
  await expect(client.sessions.waitUntilLive("bad")).rejects.toMatchObject({
    code: "session_failed",
    message: expect.stringContaining("no room"),
  });
});

test("delete resolves on 204 over both kinds of fetch", async () => {
  const { options } = await serve((_request, response) => response.writeHead(204).end());
  await new Client(options).sessions.delete("x");
  await new Client({ ...options, fetch: longFetch }).sessions.delete("x", { reason: "shell_exit" });
});

test.each([
  ["session", (client: Client) => client.sessions.delete("x")],
  ["checkpoint", (client: Client) => client.checkpoints.delete("x")],
  ["template", (client: Client) => client.templates.delete("x")],
])("a %s that is gone after a delete whose answer was lost was deleted by it", async (_what, remove) => {
  let requests = 0;
  const { client } = await serve((request, response) => {
    requests++;
    if (requests === 1) request.socket.destroy();
    else json(response, 404, { error: "no such thing", code: "not_found" });
  });
  await remove(client);
  expect(requests).toBe(2);
  await expect(remove(client)).rejects.toMatchObject({ code: "not_found" });
});

test("a key is taken as a file holds it; one that cannot be sent is refused, and its text appears in no error", async () => {
  const keys: unknown[] = [];
  const { options } = await serve((request, response) => {
    keys.push(request.headers.authorization);
    json(response, 200, {});
  });
  await new Client({ ...options, apiKey: " viv_test\n" }).sessions.get("x");
  expect(keys).toEqual(["Bearer viv_test"]);
  for (const apiKey of ["viv_\nsecret", "viv_secr\u00e9t"]) {
    let error: unknown;
    try {
      new Client({ ...options, apiKey });
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ code: "validation", message: expect.stringContaining("API key") });
    expect(String(error)).not.toContain("secr");
  }
});
