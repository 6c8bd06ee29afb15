/** Previews of real machines through the real path: security.md P-01 to P-10, N-02 and wire.md part 2, 4. */
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WebSocket } from "ws";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { servicePid } from "../support/service.ts";
import { NAVIGATION, openSocket, type Page, sendRaw, visit } from "../support/visitor.ts";
import { netnsOf, openedBetween } from "../support/world/defences.ts";
import { type Guest, hex, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const MIB = 1024 * 1024;
const APP_PORT = 3000;
const HOSTILE_PORT = 3001;
const EMPTY_PORT = 3999;
const LOCAL_PORT = 3002;

/** Tells what it was asked; keeps a log of it; echoes WebSockets; sends events; counts bodies. */
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
    if (pathname === "/cookies") return new Response("cookies", { headers: [
      ["set-cookie", "own=1"], ["set-cookie", "wide=1; Domain=localhost"], ["set-cookie", "viv_pv=forged"]] });
    return Response.json({ method: request.method, path: pathname + search, headers: Object.fromEntries(request.headers) });
  },
  websocket: { message(socket, message) { socket.send(message); } } });
require("node:http").createServer((_, answer) => answer.end("local")).listen(${LOCAL_PORT}, "127.0.0.1");
require("node:net").createServer((socket) => {
  socket.on("error", () => {});
  socket.once("data", (bytes) => {
    const path = String(bytes).split(" ")[1];
    const fill = (head, block) => {
      socket.write(head);
      const more = () => { while (socket.writable && socket.write(block)); };
      socket.on("drain", more); more();
    };
    if (path === "/header") fill("HTTP/1.1 200 OK\\r\\nX: ", "x".repeat(65536));
    else if (path === "/endless") fill("HTTP/1.1 200 OK\\r\\n\\r\\n", "x".repeat(65536));
    else if (path === "/chunks") fill("HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n", "1\\r\\nx\\r\\n".repeat(5000));
    else if (path === "/switch") socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n");
    else socket.end("nonsense\\r\\n\\r\\n");
  });
}).listen(${HOSTILE_PORT}, "0.0.0.0");
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
const hostOf = ({ preview_url }: Exposed) => new URL(preview_url).host;

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

/** How often the session's machine was made anew. */
function machineNumber(session: Guest): number {
  const folders = readdirSync(join(network.facts.dataDir, "pool/m"));
  const name = folders.find((folder) => folder.startsWith(`${session.id}-`));
  return Number(name?.split("-")[1] ?? Number.NaN);
}
/** What is said into it from now on reaches nobody, and it closes. */
async function expectCutOff(socket: WebSocket): Promise<void> {
  const echoed: string[] = [];
  socket.on("error", () => {}).on("message", (message) => echoed.push(String(message)));
  socket.send("late");
  if (socket.readyState !== socket.CLOSED) await new Promise((resolve) => socket.once("close", resolve));
  expect(echoed).toEqual([]);
}

const stateOf = async (session: Guest) => (await network.client.sessions.get(session.id)).state;

beforeAll(async () => {
  network = await startNetwork();
  guest = await network.guest({ egress: { mode: "deny", allow: [] } });
  other = await network.guest();
  await startApp(guest);
  await startApp(other);
});
afterAll(() => network?.close());

describe("the way in", () => {
  let preview: Exposed;
  beforeAll(async () => {
    preview = await expose(guest, APP_PORT);
  });

  test("the URL names port and session; its token is exchanged for a cookie and is gone", async () => {
    const { host, searchParams } = new URL(preview.preview_url);
    expect(host).toBe(`${APP_PORT}-${guest.id}.localhost:${portOf(preview)}`);
    expect(searchParams.get("t")).toBe(preview.ingress_token);
    const entry = await visit(withToken(preview, "/first?a=1"), { headers: NAVIGATION });
    expect(entry.status).toBe(302);
    expect(entry.headers.location).toBe(at(preview, "/first?a=1"));
    expect(entry.headers).toMatchObject({ "cache-control": "no-store", "referrer-policy": "no-referrer" });
    const cookie = entry.headers["set-cookie"]?.[0] ?? "";
    expect(cookie).toMatch(/^viv_pv=[^;]+; Path=\/; .*HttpOnly; SameSite=Lax/);
    const headers = { ...NAVIGATION, cookie: `${cookie.split(";")[0]}; own=1` };
    const page = await visit(at(preview, "/first?a=1"), { headers });
    expect(page.status).toBe(200);
    const seen = JSON.parse(page.body);
    expect(seen).toMatchObject({ method: "GET", path: "/first?a=1", headers: { cookie: "own=1" } });
    expect(seen.headers["x-forwarded-host"]).toBe(host);
  });

  test("token, cookie and header never reach the guest", async () => {
    const token = String(preview.ingress_token);
    const cookie = await cookieOf(preview);
    await visit(withToken(preview, "/by-url?x=1"), { headers: { "sec-fetch-mode": "cors" } });
    await visit(at(preview, "/by-header"), { headers: { "vivarium-preview-token": token } });
    await visit(at(preview, "/by-cookie"), { headers: { ...NAVIGATION, cookie } });
    const log = (await guestLog()).join("\n");
    for (const path of ["/by-url?x=1 ", "/by-header ", "/by-cookie "]) expect(log).toContain(`GET ${path}`);
    for (const secret of [token, cookie, "viv_pv"]) expect(log).not.toContain(secret);
  });

  test("large bodies, events and WebSockets pass both ways", async () => {
    const headers = { "vivarium-preview-token": String(preview.ingress_token) };
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
  });

  test("a guest sets no cookie beyond its own host, and none of ours", async () => {
    const headers = { "vivarium-preview-token": String(preview.ingress_token) };
    expect((await visit(at(preview, "/cookies"), { headers })).headers["set-cookie"]).toEqual(["own=1"]);
  });

  test("a port that nobody listens on, or only for itself, is explained", async () => {
    for (const port of [EMPTY_PORT, LOCAL_PORT]) {
      const silent = await expose(guest, port, { visibility: "public" });
      const page = await visit(at(silent), { headers: NAVIGATION });
      expect(page.status).toBe(502);
      expect(page.body).toContain(`0.0.0.0:${port}`);
      await unexpose(guest, port);
    }
  });
});

describe("nobody else gets in", () => {
  let preview: Exposed;
  let plain: Page;
  const look = (url: string, headers: Record<string, string> = {}) => visit(url, { headers });
  const same = ({ status, body, headers }: Page) => {
    const { date: _date, ...rest } = headers;
    return { status, body, headers: rest };
  };

  beforeAll(async () => {
    preview = await expose(guest, APP_PORT);
    const nobody = at(preview).replace(guest.id, "a".repeat(21));
    plain = await look(nobody);
  });

  test("a wrong or absent token, another port, another or no session: one page, byte for byte", async () => {
    expect(plain.status).toBe(404);
    const wrong = { ...preview, ingress_token: "w".repeat(43) };
    const foreign = await expose(other, APP_PORT);
    const crossed = { ...preview, ingress_token: foreign.ingress_token };
    for (const url of [
      at(preview),
      withToken(wrong, "/"),
      withToken(crossed, "/"),
      at(preview).replace(`${APP_PORT}-`, `${EMPTY_PORT}-`),
      at(preview).replace(guest.id, guest.id.slice(0, -1)),
    ])
      expect(same(await look(url))).toEqual(same(plain));
    const cookie = await cookieOf(foreign);
    expect(same(await look(at(preview), { ...NAVIGATION, cookie }))).toEqual(same(plain));
    expect((await look(at(foreign), { ...NAVIGATION, cookie })).status).toBe(200);
    expect(await openSocket(at(preview, "/ws"), { cookie, origin: `http://${hostOf(preview)}` })).toBe(404);
    expect(await openSocket(withToken(crossed, "/ws"))).toBe(404);
  });

  test("a WebSocket that another preview's page opens is refused, its own page's is not", async () => {
    const cookie = await cookieOf(preview);
    const foreign = await expose(other, APP_PORT);
    for (const origin of [`http://${hostOf(foreign)}`, "https://example.com", "null"])
      expect(await openSocket(at(preview, "/ws"), { cookie, origin })).toBe(403);
    expect(await openSocket(at(preview, "/ws"), { cookie })).toBe(403);
    const own = await openSocket(at(preview, "/ws"), { cookie, origin: `http://${hostOf(preview)}` });
    (own as WebSocket).terminate();
  });

  test.each([
    ["port 0", (host: string) => host.replace(/^\d+/, "0")],
    ["port 65536", (host: string) => host.replace(/^\d+/, "65536")],
    ["a zero in front", (host: string) => `0${host}`],
    ["a label of 64", (host: string) => host.replace(/-[a-z0-9]+/, `-${"a".repeat(60)}`)],
    ["a dot behind", (host: string) => host.replace(":", ".:")],
    ["another port of ours", (host: string) => host.replace(/:\d+$/, ":1")],
    ["letters beyond ASCII", (host: string) => host.replace("localhost", "lócalhost")],
    ["an address", () => "127.0.0.1"],
    ["another domain", (host: string) => host.replace("localhost", "localhost.example.com")],
    ["nothing", () => ""],
  ])("Host with %s leads to no session", async (_what, change) => {
    const host = change(hostOf(preview));
    const token = `Vivarium-Preview-Token: ${preview.ingress_token}`;
    const answer = await sendRaw(
      portOf(preview),
      Buffer.from(`GET / HTTP/1.1\r\nHost: ${host}\r\n${token}\r\nConnection: close\r\n\r\n`, "utf8"),
    );
    expect(answer).toMatch(/^HTTP\/1\.1 40[04] /);
    expect(answer).not.toContain("x-forwarded");
  });

  test("no Host and two Hosts lead to no session; capitals do", async () => {
    const token = `Vivarium-Preview-Token: ${preview.ingress_token}\r\nConnection: close`;
    const get = (hosts: string) => sendRaw(portOf(preview), `GET / HTTP/1.1\r\n${hosts}${token}\r\n\r\n`);
    const line = (host: string) => `Host: ${host}\r\n`;
    expect(await get("")).toMatch(/^HTTP\/1\.1 40[04] /);
    expect(await get(line(hostOf(preview)) + line(hostOf(preview)))).toMatch(/^HTTP\/1\.1 40[04] /);
    expect(await get(line(hostOf(preview).toUpperCase()))).toMatch(/^HTTP\/1\.1 200 /);
  });
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

describe("requests that two readers would read differently", () => {
  test.each([
    ["a length and chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"],
    ["chunks under another name", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"],
    ["chunks twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["a folded line", "X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n"],
    ["lines that end with LF", "X-A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    ["headers of 20 KiB", `X-A: ${"a".repeat(20 * 1024)}\r\nContent-Length: 0\r\n\r\n`],
  ])("%s: refused, and what follows is nobody's request", async (_what, rest) => {
    const preview = await expose(guest, APP_PORT);
    const token = `Vivarium-Preview-Token: ${preview.ingress_token}`;
    const head = `Host: ${hostOf(preview)}\r\n${token}\r\n`;
    const smuggled = `GET /smuggled HTTP/1.1\r\n${head}\r\n`;
    const answer = await sendRaw(portOf(preview), `POST /outer HTTP/1.1\r\n${head}${rest}${smuggled}`);
    expect(answer).toMatch(/^HTTP\/1\.1 4(00|31) /);
    expect(answer.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect((await guestLog()).join()).not.toContain("/smuggled");
  });

  test("many visitors at once get their own bytes", async () => {
    const preview = await expose(guest, APP_PORT);
    const headers = { "vivarium-preview-token": String(preview.ingress_token) };
    for (let batch = 0; batch < 10; batch++) {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, n) => visit(at(preview, `/mixed/${batch}/${n}`), { headers })),
      );
      answers.forEach(({ body }, n) => {
        expect(JSON.parse(body).path).toBe(`/mixed/${batch}/${n}`);
      });
    }
  });
});

describe("expose", () => {
  test("again as it is: nothing is minted, a paused session stays paused", async () => {
    const first = await expose(other, APP_PORT);
    const again = await expose(other, APP_PORT);
    expect(again).toEqual({ ...first, result: "unchanged" });
    await network.client.sessions.pause(other.id);
    const paused = await expose(other, APP_PORT);
    expect([paused.result, paused.preview_url, paused.guest_ip]).toEqual([
      "unchanged",
      first.preview_url,
      undefined,
    ]);
    expect(await stateOf(other)).toBe("paused");
    const changed = await expose(other, APP_PORT, { login_url: "https://example.com/login" });
    expect([changed.result, changed.ingress_token]).toEqual(["updated", first.ingress_token]);
    expect(await stateOf(other)).toBe("live");
    await expose(other, APP_PORT);
  });

  test("bearer and token are gates of their own; the header is not told to the guest", async () => {
    const bearer = await expose(guest, APP_PORT, { auth: "bearer" });
    const token = String(bearer.auth_token);
    const good = { authorization: `Bearer ${token}`, "vivarium-preview-token": String(bearer.ingress_token) };
    const { authorization, ...ingress } = good;
    const answer = await visit(at(bearer, "/bearer"), { headers: good });
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body).headers).not.toHaveProperty("authorization");
    for (const headers of [
      ingress,
      { ...ingress, authorization: `Bearer ${token.slice(1)}` },
      { ...ingress, authorization: `bearer ${token}` },
      { ...ingress, authorization: `Basic ${token}` },
    ]) {
      const refused = await visit(at(bearer), { headers });
      expect([refused.status, refused.headers["www-authenticate"]]).toEqual([401, "Bearer"]);
    }
    const twice = `Authorization: ${authorization}\r\n`.repeat(2);
    const raw = `GET / HTTP/1.1\r\nHost: ${hostOf(bearer)}\r\n${twice}Vivarium-Preview-Token: ${bearer.ingress_token}\r\n\r\n`;
    expect(await sendRaw(portOf(bearer), raw)).toMatch(/^HTTP\/1\.1 40[01] /);
    expect((await visit(at(bearer), { headers: { authorization } })).status).toBe(404);
    const kept = await expose(guest, APP_PORT, { auth: "bearer" });
    expect([kept.result, kept.auth_token, kept.ingress_token]).toEqual([
      "unchanged",
      undefined,
      bearer.ingress_token,
    ]);
    const off = await expose(guest, APP_PORT);
    expect(off.ingress_token).not.toBe(bearer.ingress_token);
    expect((await visit(at(off), { headers: good })).status).toBe(404);
  });

  test("rotate ends URL, cookie and open WebSockets before it answers", async () => {
    const before = await expose(guest, APP_PORT);
    const cookie = await cookieOf(before);
    const headers = { "vivarium-preview-token": String(before.ingress_token) };
    const socket = (await openSocket(at(before, "/ws"), headers)) as WebSocket;
    const after = await expose(guest, APP_PORT, { rotate: true });
    expect(after.result).toBe("updated");
    await expectCutOff(socket);
    expect((await visit(withToken(before, "/"))).status).toBe(404);
    expect((await visit(at(before), { headers: { ...NAVIGATION, cookie } })).status).toBe(404);
    expect((await visit(withToken(after, "/"))).status).toBe(200);
  });

  test("unexpose ends the way in; a later expose is a new one", async () => {
    const before = await expose(guest, APP_PORT);
    const headers = { "vivarium-preview-token": String(before.ingress_token) };
    const socket = (await openSocket(at(before, "/ws"), headers)) as WebSocket;
    expect((await unexpose(guest, APP_PORT)).body).toEqual({ ok: true });
    expect((await unexpose(guest, APP_PORT)).body).toEqual({ ok: false });
    await expectCutOff(socket);
    expect((await visit(withToken(before, "/"))).status).toBe(404);
    const after = await expose(guest, APP_PORT);
    expect([after.result, after.ingress_token === before.ingress_token]).toEqual(["created", false]);
  });

  test("who is not let in is sent to the login page as a browser, not as a program", async () => {
    const login = "https://example.com/login?next=here";
    const preview = await expose(guest, APP_PORT, { login_url: login });
    const browser = await visit(at(preview), { headers: NAVIGATION });
    expect([browser.status, browser.headers.location]).toEqual([302, login]);
    expect((await visit(at(preview))).status).toBe(404);
    await expose(guest, APP_PORT);
  });
});

describe("a paused session", () => {
  let preview: Exposed;
  beforeAll(async () => {
    preview = await expose(other, APP_PORT);
  });

  test("is not woken by who has no token, and answers as if it were not there", async () => {
    const live = await visit(at(preview));
    await network.client.sessions.pause(other.id);
    const { resumed_at } = await network.client.sessions.get(other.id);
    const wrong = await visit(withToken({ ...preview, ingress_token: "w".repeat(43) }, "/"));
    for (const page of [await visit(at(preview)), wrong]) {
      expect([page.status, page.body]).toEqual([live.status, live.body]);
    }
    await sleep(3_000);
    expect(await network.client.sessions.get(other.id)).toMatchObject({ state: "paused", resumed_at });
  });

  test("is woken once by a hundred visitors, who are all answered", async () => {
    await network.client.sessions.pause(other.id);
    const visits = Array.from({ length: 100 }, (_, n) => visit(withToken(preview, `/woken/${n}`)));
    const answers = await Promise.all(visits);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(await stateOf(other)).toBe("live");
    const machine = machineNumber(other);
    await network.client.sessions.pause(other.id);
    await visit(withToken(preview, "/again"));
    expect(machineNumber(other)).toBe(machine + 1);
  });

  test("sleeps on where visitors may not wake it", async () => {
    const patch = (wake: boolean) =>
      network.ask(`/v1/sessions/${other.id}`, {
        method: "PATCH",
        body: { egress_cap_bytes: 0, wake_on_http: wake },
      });
    expect((await patch(false)).body.wake_on_http).toBe(false);
    await network.client.sessions.pause(other.id);
    expect((await visit(withToken(preview, "/"))).status).toBe(404);
    await sleep(2_000);
    expect(await stateOf(other)).toBe("paused");
    await patch(true);
    expect((await visit(withToken(preview, "/"))).status).toBe(200);
  });
});

describe("a hostile guest", () => {
  test.each(["/header", "/nonsense", "/switch"])("%s is a page of ours", async (path) => {
    const preview = await expose(guest, HOSTILE_PORT, { visibility: "public" });
    expect((await visit(at(preview, path))).status).toBe(502);
  });

  test.each(["/endless", "/chunks"])("%s goes no faster than it is read, and is not kept", async (path) => {
    const preview = await expose(guest, HOSTILE_PORT, { visibility: "public" });
    const gateway = servicePid(network.facts, "gateway");
    const readers: Socket[] = [];
    /** Until nothing moves any more: all that is between guest and reader is full. */
    const addReaders = async (count: number) => {
      for (let n = 0; n < count; n++) {
        const socket = connect(portOf(preview), "127.0.0.1");
        socket.write(`GET ${path} HTTP/1.1\r\nHost: ${hostOf(preview)}\r\n\r\n`);
        readers.push(socket.on("error", () => {}).pause());
      }
      await sleep(10_000);
      // On a busy host that takes longer.
      let last = 0;
      for (let look = 0; look < 20 && Math.abs(residentBytes(gateway) - last) > MIB; look++) {
        last = residentBytes(gateway);
        await sleep(3_000);
      }
    };
    // What the process takes in order to work at all stays with it.
    await addReaders(20);
    const before = residentBytes(gateway);
    await addReaders(60);
    expect(residentBytes(gateway) - before).toBeLessThan(60 * MIB);
    for (const socket of readers) socket.destroy();
  });
});
