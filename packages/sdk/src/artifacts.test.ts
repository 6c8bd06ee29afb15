import { expect, test } from "vitest";
import { bodyOf, json, serve } from "../test-support/server.ts";

const at = "2027-03-01T09:30:00.125Z";
const pending = { id: "art_1", status: "pending", session_id: "s1", captured_at: at, expires_at: at };
const CONTENT = "0123456789";
const fileAt = (url: string) => ({ path: "out/a", url: `${url}/files/a`, size_bytes: CONTENT.length });

const collect = async (chunks: AsyncIterable<Uint8Array>) =>
  Buffer.concat(await Array.fromAsync(chunks)).toString();

test("every operation sends what the interface says and returns its answer", async () => {
  const seen: unknown[] = [];
  const { client, session } = await serve(async (request, response) => {
    const body = (await bodyOf(request)).toString();
    seen.push([request.method, request.url, ...(body === "" ? [] : [JSON.parse(body)])]);
    if (request.method === "DELETE") response.writeHead(204).end();
    else if (request.method === "GET" && request.url?.includes("sessions"))
      json(response, { artifacts: [pending] });
    else json(response, pending);
  });
  expect(await session.artifacts.capture(["out", "*.log"])).toEqual(pending);
  expect(await session.artifacts.list()).toEqual({ artifacts: [pending] });
  expect(await client.artifacts.get("art_1")).toEqual(pending);
  expect(await client.artifacts.extend("art_1", 30)).toEqual(pending);
  await client.artifacts.delete("art_1");
  await client.artifacts.get("../keys");
  expect(seen).toEqual([
    ["POST", "/v1/sessions/s1/artifacts", { paths: ["out", "*.log"] }],
    ["GET", "/v1/sessions/s1/artifacts"],
    ["GET", "/v1/artifacts/art_1"],
    ["POST", "/v1/artifacts/art_1/extend", { ttl_days: 30 }],
    ["DELETE", "/v1/artifacts/art_1"],
    ["GET", "/v1/artifacts/..%2Fkeys"],
  ]);
});

test("a capture whose answer was lost is not begun again, a read and an extension are", async () => {
  let requests = 0;
  const { client, session } = await serve((request, response) => {
    requests++;
    if (requests === 1) request.socket.destroy();
    else json(response, pending);
  });
  await expect(session.artifacts.capture(["out"])).rejects.toMatchObject({ code: "connection_failed" });
  expect(requests).toBe(1);
  for (const call of [() => client.artifacts.get("art_1"), () => client.artifacts.extend("art_1", 2)]) {
    requests = 0;
    expect(await call()).toEqual(pending);
    expect(requests).toBe(2);
  }
});

test("waiting polls until the artifact is ready, ever more slowly", async () => {
  let requests = 0;
  const { client, waits } = await serve((_request, response) => {
    requests++;
    json(response, { ...pending, status: requests < 9 ? "pending" : "ready" });
  });
  expect(await client.artifacts.waitUntilReady("art_1")).toMatchObject({ status: "ready" });
  expect(waits).toHaveLength(8);
  expect(waits).toEqual(waits.toSorted((a, b) => a - b));
  expect(waits.at(-1)).toBe(2_000);
});

test("waiting ends with the reason of a failed capture, and at its time limit", async () => {
  let status = "failed";
  const { client } = await serve((_request, response) =>
    json(response, { ...pending, status, error: "no file matches the paths" }),
  );
  await expect(client.artifacts.waitUntilReady("art_1")).rejects.toMatchObject({
    code: "artifact_failed",
    message: expect.stringContaining("no file matches the paths"),
  });
  status = "pending";
  await expect(client.artifacts.waitUntilReady("art_1", { timeoutMs: 0 })).rejects.toMatchObject({
    code: "wait_timeout",
  });
});

/** Serves the file with ranges, as the service does. `ask`: what was asked for. */
async function serveFile(most = CONTENT.length) {
  const asked: unknown[] = [];
  const { client, url } = await serve((request, response) => {
    const { authorization, range } = request.headers;
    asked.push({ authorization, range });
    const from = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? 0);
    response.writeHead(range ? 206 : 200, { "content-length": CONTENT.length - from });
    if (most === CONTENT.length) response.end(CONTENT.slice(from));
    else response.write(CONTENT.slice(from, most), () => response.destroy());
  });
  return { client, file: fileAt(url), asked };
}

test("a download sends no credential to its link, and continues where it was", async () => {
  const { client, file, asked } = await serveFile();
  expect(await collect(client.artifacts.download(file))).toBe(CONTENT);
  expect(await collect(client.artifacts.download(file, { from: 4 }))).toBe("456789");
  expect(await collect(client.artifacts.download(file, { from: CONTENT.length }))).toBe("");
  expect(asked).toEqual([
    { authorization: undefined, range: undefined },
    { authorization: undefined, range: "bytes=4-" },
  ]);
});

test("a download that breaks off says so, and never looks whole", async () => {
  const { client, file } = await serveFile(5);
  const got: string[] = [];
  const reading = (async () => {
    for await (const chunk of client.artifacts.download(file)) got.push(Buffer.from(chunk).toString());
  })();
  await expect(reading).rejects.toMatchObject({ code: "stream_interrupted", retryable: true });
  expect(CONTENT.startsWith(got.join(""))).toBe(true);
  const short = await serve((_request, response) => void response.end(CONTENT.slice(0, 5)));
  await expect(collect(short.client.artifacts.download(fileAt(short.url)))).rejects.toMatchObject({
    code: "stream_interrupted",
  });
});

test("a lapsed link, and a server that ignores the range, are errors of their own", async () => {
  const { client, url } = await serve((request, response) => {
    if (request.headers.range) response.end(CONTENT);
    else json(response, { error: "this link is not valid", code: "forbidden" }, 403);
  });
  await expect(collect(client.artifacts.download(fileAt(url)))).rejects.toMatchObject({ code: "forbidden" });
  await expect(collect(client.artifacts.download(fileAt(url), { from: 2 }))).rejects.toThrow(
    "ignored the range",
  );
  const { url: _left, ...withoutLink } = fileAt(url);
  await expect(collect(client.artifacts.download(withoutLink))).rejects.toMatchObject({ code: "validation" });
});
