import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { bodyOf, json, serve } from "../../test-support/server.ts";
import type { PreviewOptions } from "./expose.ts";

type Guest = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

/** The requests that a preview's host receives, in order. */
interface Seen {
  request: string;
  token: unknown;
  authorization: unknown;
  type: unknown;
  length: unknown;
  body: string;
}

async function startGuest(answer: Guest = (_request, response) => void response.end("hello")) {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    const { headers } = request;
    seen.push({
      request: `${request.method} http://${headers.host}${request.url}`,
      token: headers["vivarium-preview-token"],
      authorization: headers.authorization,
      type: headers["content-type"],
      length: headers["content-length"],
      body: (await bodyOf(request)).toString(),
    });
    await answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { seen, origin: `http://8000-s1.localhost:${(server.address() as AddressInfo).port}` };
}

interface Route {
  visibility?: "token" | "public";
  auth?: "none" | "bearer";
  auth_token?: string;
}

/** A service that exposes port 8000 with these settings, and serves that guest; records the expose calls. */
async function startService(origin: string, known: Route | undefined, answered: Route = known ?? {}) {
  const asked: unknown[] = [];
  const { session } = await serve(async (request, response) => {
    const previews = [
      { port: 9, visibility: "public", auth: "bearer" },
      ...(known ? [{ port: 8000, ...known }] : []),
    ];
    if (request.method === "GET") return json(response, { session_id: "s1", exposed_previews: previews });
    asked.push(JSON.parse((await bodyOf(request)).toString()));
    const { visibility = "token", auth = "none" } = answered;
    const isToken = visibility === "token";
    json(response, {
      ...answered,
      visibility,
      auth,
      preview_url: isToken ? `${origin}/?t=tok` : origin,
      ...(isToken && { ingress_token: "tok" }),
    });
  });
  return { session, asked };
}

async function openPreview(answer?: Guest, known?: Route, options?: PreviewOptions) {
  const { seen, origin } = await startGuest(answer);
  const { session, asked } = await startService(origin, known);
  return { preview: await session.preview(8000, options), seen, origin, asked };
}

test("a port that is not exposed is exposed, and fetched with its token and without it in the URL", async () => {
  const { preview, seen, origin, asked } = await openPreview();
  expect(asked).toEqual([{ port: 8000 }]);
  expect(preview.url).toBe(origin);
  expect(preview.exposed.preview_url).toBe(`${origin}/?t=tok`);
  const response = await preview.fetch("/a?b=1");
  expect([response.status, await response.text()]).toEqual([200, "hello"]);
  const { fetch } = preview;
  await fetch(new URL(`${origin}/c`));
  await fetch(new Request(`${origin}/d`, { method: "DELETE" }));
  expect(seen.map(({ request, token, authorization }) => [request, token, authorization])).toEqual([
    [`GET ${origin}/a?b=1`, "tok", undefined],
    [`GET ${origin}/c`, "tok", undefined],
    [`DELETE ${origin}/d`, "tok", undefined],
  ]);
});

test("an exposed port is asked for as it is", async () => {
  const known = { visibility: "public", auth: "none" } as const;
  const { preview, asked, seen } = await openPreview(undefined, known);
  expect(asked).toEqual([{ port: 8000, ...known }]);
  expect(preview.headers).toEqual({});
  await preview.fetch("/");
  expect(seen[0]).toMatchObject({ token: undefined, authorization: undefined });
});

test("a login URL is kept when it is given", async () => {
  const loginUrl = "https://login.example/";
  const known = { visibility: "token", auth: "none" } as const;
  const { asked } = await openPreview(undefined, known, { loginUrl });
  expect(asked).toEqual([{ port: 8000, ...known, login_url: loginUrl }]);
});

test("a bearer token goes with the requests: the one that was given, or the one that was just made", async () => {
  const known = { visibility: "token", auth: "bearer" } as const;
  const { preview, seen, origin } = await openPreview(undefined, known, { authToken: "given" });
  await preview.fetch("/", { headers: { authorization: "Basic eA==" } });
  expect(seen[0]).toMatchObject({ token: "tok", authorization: "Bearer given" });
  const minting = await startService(origin, known, { ...known, auth_token: "made" });
  await (await minting.session.preview(8000, { authToken: "old" })).fetch("/");
  expect(seen[1]).toMatchObject({ authorization: "Bearer made" });
});

test("a bearer token that is not given is an error with a code, and nothing is changed", async () => {
  const { session, asked } = await startService("http://x.localhost", {
    visibility: "public",
    auth: "bearer",
  });
  await expect(session.preview(8000)).rejects.toMatchObject({ code: "bearer_unknown" });
  expect(asked).toEqual([]);
});

test("bodies go as fetch sends them: texts, bytes and forms with their length and type, streams as they come", async () => {
  const { preview, seen } = await openPreview();
  const method = "POST";
  await preview.fetch("/", { method, body: "é", headers: { "content-type": "text/x" } });
  await preview.fetch("/", { method, body: new URLSearchParams({ a: "1" }) });
  const form = new FormData();
  form.set("f", new Blob(["x"]), "f.txt");
  await preview.fetch("/", { method, body: form });
  const stream = new Blob(["streamed"]).stream();
  await preview.fetch("/", { method, body: stream });
  expect(seen.map(({ body, length, type }) => [body, length, type])).toEqual([
    ["é", "2", "text/x"],
    ["a=1", "3", "application/x-www-form-urlencoded;charset=UTF-8"],
    [
      expect.stringContaining('filename="f.txt"'),
      expect.stringMatching(/^\d+$/),
      expect.stringMatching(/^multipart\/form-data; boundary=/),
    ],
    ["streamed", undefined, undefined],
  ]);
  const boundary = String(seen[2]?.type).split("boundary=")[1] ?? "none";
  expect(seen[2]?.body).toContain(boundary);
});

test("another origin is refused before anything is sent", async () => {
  const { preview, origin } = await openPreview();
  const other = await startGuest();
  for (const url of [`${other.origin}/`, origin.replace("8000-", "8001-"), `//x.example/`])
    await expect(preview.fetch(url)).rejects.toThrow(TypeError);
  expect(other.seen).toEqual([]);
});

test("redirects are followed inside the preview and nowhere else", async () => {
  const other = await startGuest();
  const { preview, seen } = await openPreview((request, response) => {
    const to = { "/in": "/here", "/out": `${other.origin}/there`, "/loop": "/loop" }[request.url ?? ""];
    if (to === undefined) return void response.end("arrived");
    response.writeHead(request.method === "PUT" ? 307 : 302, { location: to }).end();
  });
  expect(await (await preview.fetch("/in", { method: "POST", body: "x" })).text()).toBe("arrived");
  expect(seen.map(({ request, body, type }) => [request.split(" ")[0], body, type])).toEqual([
    ["POST", "x", "text/plain;charset=UTF-8"],
    ["GET", "", undefined],
  ]);
  expect(await (await preview.fetch("/in", { method: "PUT", body: "y" })).text()).toBe("arrived");
  expect(seen.slice(2).map(({ request, body, token }) => [request.split(" ")[0], body, token])).toEqual([
    ["PUT", "y", "tok"],
    ["PUT", "y", "tok"],
  ]);
  const leading = await preview.fetch("/out");
  expect([leading.status, leading.headers.get("location")]).toEqual([302, `${other.origin}/there`]);
  expect(other.seen).toEqual([]);
  expect((await preview.fetch("/in", { redirect: "manual" })).status).toBe(302);
  await expect(preview.fetch("/in", { redirect: "error" })).rejects.toThrow("redirects");
  await expect(preview.fetch("/loop")).rejects.toThrow("more than 20 times");
});

test("every answer of a guest is an answer or an error", async () => {
  const { preview } = await openPreview((request, response) => {
    response.writeHead(Number(request.url?.slice(1))).end();
  });
  for (const status of [204, 205, 304, 404, 500])
    expect((await preview.fetch(`/${status}`)).status).toBe(status);
  await expect(preview.fetch("/999")).rejects.toMatchObject({ code: "connection_failed" });
});

test("a signal ends a request that is held", async () => {
  const { preview } = await openPreview(() => {});
  const signal = AbortSignal.timeout(100);
  await expect(preview.fetch("/", { signal })).rejects.toMatchObject({ name: "TimeoutError" });
});
