/**
 * Previews of real machines through the real path, one way in of each kind: P-02 to P-05, P-08, P-10 and N-02. The
 * parsing of hosts, tokens, requests and answers is tested in the gateway (packages/gateway/src/previews).
 */
import { sleep } from "@vivarium/kit/clock";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WebSocket } from "ws";
import { eventually } from "../support/eventually.ts";
import { NAVIGATION, openSocket, type Page, visit } from "../support/visitor.ts";
import { netnsOf, openedBetween } from "../support/world/defences.ts";
import { type Guest, hex, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const MIB = 1024 * 1024;
const APP_PORT = 3000;
const EMPTY_PORT = 3999;
const LOCAL_PORT = 3002;

/** Echoes its requests, and logs them; echoes WebSockets; sends events; counts bodies. */
const APP = `
const log = [];
Bun.serve({ port: ${APP_PORT}, hostname: "0.0.0.0", idleTimeout: 0, maxRequestBodySize: 1e9,
  async fetch(request, server) {
    const { pathname, search } = new URL(request.url);
    if (pathname === "/log") return Response.json(log);
    log.push(request.method + " " + pathname + search + " " + JSON.stringify([...request.headers]));
    if (pathname === "/ws" && server.upgrade(request)) return;
    if (pathname === "/count") return Response.json({ bytes: (await request.arrayBuffer()).byteLength });
    if (pathname === "/large") return new Response(new Uint8Array(8 * ${MIB}));
    if (pathname === "/events") return new Response(new ReadableStream({ async start(controller) {
      for (let n = 0; n < 3; n++) { controller.enqueue("data: " + n + "\\n\\n"); await Bun.sleep(200); }
      controller.close(); } }), { headers: { "content-type": "text/event-stream" } });
    return Response.json({ method: request.method, path: pathname + search, headers: Object.fromEntries(request.headers) });
  },
  websocket: { message(socket, message) { socket.send(message); } } });
require("node:http").createServer((_, answer) => answer.end("local")).listen(${LOCAL_PORT}, "127.0.0.1");
console.log("listening");
`;

let network: Network;
let guest: Guest;
let other: Guest;

interface Exposed {
  preview_url: string;
  ingress_token?: string;
  auth_token?: string;
  result: string;
  guest_ip?: string;
}

async function expose(session: Guest, port: number, more: object = {}): Promise<Exposed> {
  const { status, body } = await network.ask(`/v1/sessions/${session.id}/expose`, {
    body: { port, ...more },
  });
  if (status !== 200) throw new Error(`expose was refused with ${status}: ${JSON.stringify(body)}`);
  return body as unknown as Exposed;
}
const unexpose = (session: Guest, port: number) =>
  network.ask(`/v1/sessions/${session.id}/unexpose`, { body: { port } });

/** The preview's URL without its token, at this path. */
const at = ({ preview_url }: Exposed, path = "/") => new URL(path, preview_url).href;
const withToken = (exposed: Exposed, path: string) => {
  const url = new URL(path, exposed.preview_url);
  url.searchParams.set("t", exposed.ingress_token ?? "");
  return url.href;
};
const portOf = ({ preview_url }: Exposed) => Number(new URL(preview_url).port);

async function cookieOf(exposed: Exposed): Promise<string> {
  const { headers } = await visit(withToken(exposed, "/"), { headers: NAVIGATION });
  return headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
}

async function startApp(session: Guest): Promise<void> {
  await network.client.session(session.id).files.write("app.js", APP);
  await session.start("app", "exec bun /workspace/app.js");
  await eventually(async () => {
    const [found] = await session.probe({ op: "tcp", host: "127.0.0.1", port: APP_PORT, wait: 0.2 });
    expect(found?.error).toBe(undefined);
  }, 60_000);
}

const guestLog = async () =>
  JSON.parse(await guest.run(`curl -s http://127.0.0.1:${APP_PORT}/log`)) as string[];

/** Bytes sent into it from now on do not arrive, and it closes. */
async function expectCutOff(socket: WebSocket): Promise<void> {
  const echoed: string[] = [];
  socket.on("error", () => {}).on("message", (message) => echoed.push(String(message)));
  socket.send("late");
  if (socket.readyState !== socket.CLOSED) await new Promise((resolve) => socket.once("close", resolve));
  expect(echoed).toEqual([]);
}

beforeAll(async () => {
  network = await startNetwork();
  [guest, other] = await Promise.all([
    network.guest({ egress: { mode: "deny", allow: [] } }),
    network.guest(),
  ]);
  await Promise.all([startApp(guest), startApp(other)]);
});
afterAll(() => network?.close());

describe("visitors with access", () => {
  let preview: Exposed;
  beforeAll(async () => {
    preview = await expose(guest, APP_PORT);
  });

  test("a browser, by a URL whose token is exchanged for a cookie and is gone", async () => {
    const { host, searchParams } = new URL(preview.preview_url);
    expect(host).toBe(`${APP_PORT}-${guest.id}.localhost:${portOf(preview)}`);
    expect(searchParams.get("t")).toBe(preview.ingress_token);
    const entry = await visit(withToken(preview, "/first?a=1"), { headers: NAVIGATION });
    expect([entry.status, entry.headers.location]).toEqual([302, at(preview, "/first?a=1")]);
    const cookie = entry.headers["set-cookie"]?.[0] ?? "";
    expect(cookie).toMatch(/^viv_pv=[^;]+; Path=\/; .*HttpOnly; SameSite=Lax/);
    const headers = { ...NAVIGATION, cookie: `${cookie.split(";")[0]}; own=1` };
    const page = await visit(at(preview, "/first?a=1"), { headers });
    expect(page.status).toBe(200);
    const seen = JSON.parse(page.body);
    expect(seen).toMatchObject({ method: "GET", path: "/first?a=1", headers: { cookie: "own=1" } });
    expect(seen.headers["x-forwarded-host"]).toBe(host);
  });

  test("a program, by a header; large bodies, events and WebSockets pass both ways, and no token reaches the guest", async () => {
    const token = String(preview.ingress_token);
    const headers = { "vivarium-preview-token": token };
    const body = Buffer.alloc(16 * MIB, 7);
    expect((await visit(at(preview, "/count"), { method: "POST", headers, body })).body).toBe(
      JSON.stringify({ bytes: 16 * MIB }),
    );
    expect((await visit(at(preview, "/large"), { headers })).body).toHaveLength(8 * MIB);
    const events = await visit(at(preview, "/events"), { headers });
    expect(events.headers["content-type"]).toContain("text/event-stream");
    expect(events.body).toBe("data: 0\n\ndata: 1\n\ndata: 2\n\n");
    const socket = (await openSocket(at(preview, "/ws"), headers)) as WebSocket;
    const echoed = new Promise((resolve) => socket.once("message", (message) => resolve(String(message))));
    socket.send("through and back");
    expect(await echoed).toBe("through and back");
    socket.terminate();
    const log = (await guestLog()).join("\n");
    expect(log).toContain("POST /count ");
    expect(log).not.toContain(token);
  });

  test("a visitor with the bearer token as well, where the preview asks for one", async () => {
    const bearer = await expose(guest, APP_PORT, { auth: "bearer" });
    const ingress = { "vivarium-preview-token": String(bearer.ingress_token) };
    const good = { ...ingress, authorization: `Bearer ${bearer.auth_token}` };
    const answer = await visit(at(bearer, "/bearer"), { headers: good });
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body).headers).not.toHaveProperty("authorization");
    const refused = await visit(at(bearer), { headers: ingress });
    expect([refused.status, refused.headers["www-authenticate"]]).toEqual([401, "Bearer"]);
    expect((await visit(at(bearer), { headers: { authorization: good.authorization } })).status).toBe(404);
  });

  test("everyone, where it is public; a port without a listener, or with a local one, is explained", async () => {
    for (const port of [EMPTY_PORT, LOCAL_PORT]) {
      const silent = await expose(guest, port, { visibility: "public" });
      const page = await visit(at(silent), { headers: NAVIGATION });
      expect(page.status).toBe(502);
      expect(page.body).toContain(`0.0.0.0:${port}`);
      await unexpose(guest, port);
    }
    const open = await expose(guest, APP_PORT, { visibility: "public" });
    expect((await visit(at(open), { headers: NAVIGATION })).status).toBe(200);
  });

  test("no other visitor: browsers are sent to the login page where there is one, and all others see one page, byte for byte", async () => {
    const login = "https://example.com/login?next=here";
    const guarded = await expose(guest, APP_PORT, { login_url: login });
    const browser = await visit(at(guarded), { headers: NAVIGATION });
    expect([browser.status, browser.headers.location]).toEqual([302, login]);
    const own = await expose(guest, APP_PORT);
    const foreign = await expose(other, APP_PORT);
    const same = ({ status, body, headers: { date: _date, ...headers } }: Page) => ({
      status,
      body,
      headers,
    });
    const plain = await visit(at(own).replace(guest.id, "a".repeat(21)));
    expect(plain.status).toBe(404);
    const crossed = withToken({ ...own, ingress_token: foreign.ingress_token }, "/");
    for (const url of [at(own), crossed, at(own).replace(`${APP_PORT}-`, `${EMPTY_PORT}-`)])
      expect(same(await visit(url))).toEqual(same(plain));
    const cookie = await cookieOf(foreign);
    const headers = { ...NAVIGATION, cookie };
    expect(same(await visit(at(own), { headers }))).toEqual(same(plain));
    expect((await visit(at(foreign), { headers })).status).toBe(200);
    expect(await openSocket(at(own, "/ws"), { cookie, origin: new URL(own.preview_url).origin })).toBe(404);
  });
});

test.each([
  ["rotate", (session: Guest) => expose(session, APP_PORT, { rotate: true })],
  ["unexpose", (session: Guest) => unexpose(session, APP_PORT)],
] as const)("%s ends URL, cookie and open WebSockets before it answers", async (_how, end) => {
  const before = await expose(guest, APP_PORT);
  const cookie = await cookieOf(before);
  const headers = { "vivarium-preview-token": String(before.ingress_token) };
  const socket = (await openSocket(at(before, "/ws"), headers)) as WebSocket;
  await end(guest);
  await expectCutOff(socket);
  expect((await visit(withToken(before, "/"))).status).toBe(404);
  expect((await visit(at(before), { headers: { ...NAVIGATION, cookie } })).status).toBe(404);
  expect((await visit(withToken(await expose(guest, APP_PORT), "/"))).status).toBe(200);
});

describe("another session", () => {
  const ask = (host: string, port: number, path: string): Probe => ({
    ...{ op: "tcp", host, port, wait: 2 },
    chunks: [hex(`GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`)],
  });
  const heard = async (path: string) => (await guestLog()).some((line) => line.includes(path));

  test("reaches neither the exposed port of a machine nor another one, nor its gateway (N-02)", async () => {
    const { guest_ip: address = "" } = await expose(guest, APP_PORT);
    const gateway = address.replace(/\d+$/, (last) => String(Number(last) - 1));
    const closed = [
      ...[APP_PORT, EMPTY_PORT, 22].map((port) => ask(address, port, "/from-another")),
      ...[53, 80, 443, 15053, 15080, 15443].map((port) => ask(gateway, port, "/from-another")),
    ];
    for (const { got } of await other.probe(...closed)) expect(got ?? "").toBe("");
    expect(await heard("/from-another")).toBe(false);
    const { facts } = network;
    const to = { netns: netnsOf(facts, guest.id), address, port: APP_PORT };
    await openedBetween(netnsOf(facts, other.id), to, async () => {
      expect((await other.one(ask(address, APP_PORT, "/with-the-rules-away"))).got).toMatch(
        /^HTTP\/1\.1 200/,
      );
    });
    expect(await heard("/with-the-rules-away")).toBe(true);
    expect((await other.one(ask(address, APP_PORT, "/after"))).got ?? "").toBe("");
    expect(await heard("/after")).toBe(false);
  });
});

test("a paused session is woken by a visitor with a token, and by no other", async () => {
  const preview = await expose(other, APP_PORT);
  const live = await visit(at(preview));
  await network.client.sessions.pause(other.id);
  const wrong = await visit(withToken({ ...preview, ingress_token: "w".repeat(43) }, "/"));
  for (const page of [await visit(at(preview)), wrong])
    expect([page.status, page.body]).toEqual([live.status, live.body]);
  await sleep(2_000);
  expect((await network.client.sessions.get(other.id)).state).toBe("paused");
  const visits = Array.from({ length: 20 }, (_, n) => visit(withToken(preview, `/woken/${n}`)));
  const answers = await Promise.all(visits);
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  expect((await network.client.sessions.get(other.id)).state).toBe("live");
});
