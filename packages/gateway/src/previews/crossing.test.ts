import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { Agent, request, type ServerResponse } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  expose,
  type Gateway,
  type Guest,
  get,
  NAVIGATION,
  sendRaw,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

let gateway: Gateway;
let guest: Guest;
/** How the guest answers the path that is asked for. */
const pages: Record<string, (response: ServerResponse, body: Buffer) => void> = {};

beforeAll(async () => {
  gateway = await startGateway();
  guest = await startGuest((message, response) => {
    const path = (message.url ?? "").split("?")[0] ?? "";
    if (path === "/digest") {
      const hash = createHash("sha256");
      message.on("data", (chunk) => hash.update(chunk)).on("end", () => response.end(hash.digest("hex")));
    } else (pages[path] ?? ((page) => page.end("plain")))(response, Buffer.alloc(0));
  });
});

afterAll(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
});

describe("what reaches the guest", () => {
  test("has no token in its line, its cookies, its Referer or any header (P-03)", async () => {
    const { host, token } = expose(gateway, guest);
    const first = await get(gateway, host, `/?t=${token}`, { headers: NAVIGATION });
    const cookie = first.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const [, mac = "no cookie"] = cookie.split("=");
    const before = guest.heads.length;
    const referer = `http://${host}/page?a=1&t=${token}`;
    await get(gateway, host, `/a?%74=${token}&x=1`, { headers: { cookie: `a=1; ${cookie}; b=2`, referer } });
    await get(gateway, host, "/b", { headers: { cookie, "vivarium-preview-token": token } });
    await get(gateway, host, `/c?t=${token}`, { method: "POST", headers: { cookie }, body: "x" });
    const heads = guest.heads.slice(before);
    expect(heads).toHaveLength(3);
    for (const secret of [token, mac, "viv_pv", "vivarium-preview-token"]) {
      expect(heads.join().toLowerCase()).not.toContain(secret.toLowerCase());
    }
    expect(heads[0]).toContain("GET /a?x=1\n");
    expect(heads[0]).toMatch(/^cookie: a=1;\s+b=2$/m);
    expect(heads[0]).toContain(`referer: http://${host}/page?a=1\n`);
    expect(heads[1]).not.toMatch(/^cookie:/m);
  });

  test("says where it comes from by our word alone, and nothing of a hop", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    await get(gateway, host, "/", {
      headers: {
        "x-forwarded-for": "6.6.6.6",
        "x-forwarded-host": "evil.example",
        "x-forwarded-prefix": "/evil",
        "x-real-ip": "6.6.6.6",
        forwarded: "for=6.6.6.6",
        te: "trailers",
        "keep-alive": "timeout=9",
        "proxy-authorization": "Basic x",
        connection: "close, x-hop",
        "x-hop": "1",
        "x-kept": "1",
      },
    });
    const head = guest.heads.at(-1) ?? "";
    expect(head).not.toMatch(/6\.6\.6\.6|evil|x-hop|proxy-authorization|keep-alive|^te:/im);
    expect(head).toMatch(/^x-kept: 1$/m);
    expect(head).toMatch(/^x-forwarded-for: 127\.0\.0\.1$/m);
    expect(head).toMatch(/^x-forwarded-proto: http$/m);
    expect(head).toContain(`x-forwarded-host: ${host}\n`);
    expect(head).toContain(`host: ${host}\n`);
  });

  test("has nothing that a program could read as one of our headers, written with _ for -", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    const ours = ["X_Forwarded_For", "x-forwarded_host", "X_FORWARDED-PROTO", "X_Real_IP", "Content_Length"];
    const secret = ["Proxy_Authorization", "Vivarium_Preview_Token", "Transfer_Encoding"];
    const headers = Object.fromEntries([...ours, ...secret].map((name) => [name, "6.6.6.6"]));
    await get(gateway, host, "/", { headers: { ...headers, X_Kept: "1", x_forwarded: "2" } });
    const head = guest.heads.at(-1) ?? "";
    expect(head).not.toContain("6.6.6.6");
    expect(head).toMatch(/^x_kept: 1$/im);
    expect(head).toMatch(/^x_forwarded: 2$/im);
    expect(head).toMatch(/^x-forwarded-for: 127\.0\.0\.1$/m);
  });
});

describe("what reaches the visitor", () => {
  test("cannot touch what lies beyond the preview's own host", async () => {
    pages["/reach"] = (response) => {
      response.setHeader("Set-Cookie", [
        "own=1; Path=/",
        "wide=1; Domain=localhost",
        "wide2=1; path=/;DOMAIN = .localhost",
        "viv_pv=9.x",
        " __Host-viv_pv=9.x; Secure; Path=/",
        "__Secure-viv_other=1",
        "=viv_pv=9.x",
        "viv_pv",
      ]);
      response.setHeader("Alt-Svc", 'h3=":443"');
      response.setHeader("Public-Key-Pins", "pin");
      response.setHeader("Service-Worker-Allowed", "/");
      response.setHeader("Clear-Site-Data", '"cookies", "storage"');
      response.setHeader("Keep-Alive", "timeout=999");
      response.setHeader("X-Kept", ["1", "2"]);
      response.end("ok");
    };
    const { host } = expose(gateway, guest, { visibility: "public" });
    const reply = await get(gateway, host, "/reach", {
      headers: { origin: "http://other.example", connection: "keep-alive" },
    });
    expect(reply.headers["set-cookie"]).toEqual(["own=1; Path=/"]);
    expect(reply.headers["clear-site-data"]).toBe('"storage"');
    expect(reply.headers["x-kept"]).toBe("1, 2");
    const names = reply.rawHeaders.map((name) => name.toLowerCase());
    for (const name of [
      "alt-svc",
      "public-key-pins",
      "service-worker-allowed",
      "access-control-allow-origin",
    ]) {
      expect(names).not.toContain(name);
    }
    expect(reply.headers["keep-alive"]).not.toContain("999");
  });

  test("neither shows a kept page for a link with another token, nor reports such links", async () => {
    pages["/kept"] = (response) => {
      response.setHeader("Cache-Control", "max-age=3600");
      response.setHeader("No-Vary-Search", 'params=("t")');
      response.setHeader("NEL", '{"report_to":"default","max_age":3600,"success_fraction":1}');
      response.end("kept");
    };
    const { host, token } = expose(gateway, guest);
    const { headers } = await get(gateway, host, "/kept", { headers: { "vivarium-preview-token": token } });
    expect(headers["cache-control"]).toBe("max-age=3600");
    expect([headers["no-vary-search"], headers.nel]).toEqual([undefined, undefined]);
  });

  test("to clear all of a site's data clears what is the preview's own", async () => {
    pages["/clear"] = (response) => response.setHeader("Clear-Site-Data", '"*"').end();
    pages["/clear-cookies"] = (response) => response.setHeader("Clear-Site-Data", '"cookies"').end();
    const { host } = expose(gateway, guest, { visibility: "public" });
    expect((await get(gateway, host, "/clear")).headers["clear-site-data"]).toBe('"cache", "storage"');
    expect((await get(gateway, host, "/clear-cookies")).headers["clear-site-data"]).toBeUndefined();
  });

  test("keeps status, reason and headers, also of answers without a body", async () => {
    pages["/teapot"] = (response) => response.writeHead(418, "Short And Stout", { ETag: '"x"' }).end("tea");
    pages["/none"] = (response) => response.writeHead(204).end();
    pages["/same"] = (response) => response.writeHead(304, { ETag: '"x"' }).end();
    const { host } = expose(gateway, guest, { visibility: "public" });
    const teapot = await get(gateway, host, "/teapot");
    expect([teapot.status, teapot.headers.etag, teapot.body]).toEqual([418, '"x"', "tea"]);
    expect((await get(gateway, host, "/none")).status).toBe(204);
    expect((await get(gateway, host, "/same")).status).toBe(304);
    pages["/long"] = (response) => response.writeHead(200, { "Content-Length": 5 }).end();
    const head = await get(gateway, host, "/long", { method: "HEAD" });
    expect([head.headers["content-length"], head.body]).toEqual(["5", ""]);
  });
});

describe("bytes of headers", () => {
  const bytes = "caf\u00e9 \u00c3\u00a9 \u00e6\u0097\u00a5";

  test("are the same bytes on either side", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    pages["/bytes"] = (page) => void page.writeHead(200, ["X-Name", bytes]).end(Buffer.from("x"));
    const asked = `GET /bytes HTTP/1.1\r\nHost: ${host}\r\nX-Asked: ${bytes}\r\nConnection: close\r\n\r\n`;
    const answer = await sendRaw(gateway.port, Buffer.from(asked, "latin1"));
    expect(answer).toContain(`\r\nX-Name: ${bytes}\r\n`);
    expect(guest.heads.at(-1)).toContain(`x-asked: ${bytes}\n`);
  });

  test("name a file, whatever letters its name has and wherever its length is given", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    const named = `attachment; filename="${bytes}"`;
    pages["/file"] = (page) => {
      const lines = `HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Disposition: ${named}\r\n\r\nx`;
      page.socket?.end(Buffer.from(lines, "latin1"));
    };
    const asked = `GET /file HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
    const answer = await sendRaw(gateway.port, asked);
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).toContain(`\r\nContent-Disposition: ${named}\r\n`);
  });
});

describe("bodies", () => {
  test("of any size cross both ways whole", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    const body = randomBytes(32 << 20);
    const digest = createHash("sha256").update(body).digest("hex");
    expect((await get(gateway, host, "/digest", { method: "PUT", body })).body).toBe(digest);
    const chunked = { "transfer-encoding": "chunked" };
    expect((await get(gateway, host, "/digest", { method: "POST", headers: chunked, body })).body).toBe(
      digest,
    );
    pages["/big"] = (response) => response.end(body);
    const reply = await get(gateway, host, "/big");
    expect(reply.body.length).toBe(body.toString().length);
  });

  test("an upload is welcomed only once its sender is let in", async () => {
    const ask = async (host: string) => {
      const headers = { host, expect: "100-continue", "content-length": "1" };
      const outgoing = request({
        port: gateway.port,
        method: "POST",
        path: "/digest",
        headers,
        agent: false,
      });
      let isWelcome = false;
      outgoing.on("continue", () => {
        isWelcome = true;
        outgoing.end("x");
      });
      outgoing.flushHeaders();
      const [answer] = await once(outgoing, "response");
      answer.resume();
      outgoing.destroy();
      return [isWelcome, answer.statusCode];
    };
    expect(await ask(expose(gateway, guest).host)).toEqual([false, 404]);
    expect(await ask(expose(gateway, guest, { visibility: "public" }).host)).toEqual([true, 200]);
  });

  test("an event reaches the visitor when it was sent, not when the answer ends", async () => {
    let send: (text: string) => void = () => undefined;
    pages["/events"] = (response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.flushHeaders();
      send = (text) => response.write(text);
    };
    const { host, route } = expose(gateway, guest, { visibility: "public" });
    const outgoing = request({ port: gateway.port, path: "/events", headers: { host }, agent: false }).end();
    const [answer] = await once(outgoing, "response");
    for (const event of ["data: 1\n\n", "data: 2\n\n"]) {
      send(event);
      const [chunk] = await once(answer, "data");
      expect(String(chunk)).toBe(event);
    }
    outgoing.destroy();
    expect(gateway.active).toContain(route.session_id);
  });

  test("a guest stops sending while its visitor does not read", async () => {
    let sent = 0;
    pages["/flood"] = (response) => {
      const chunk = Buffer.alloc(64 << 10);
      const more = () => {
        sent += chunk.length;
        response.write(chunk, () => response.destroyed || more());
      };
      more();
    };
    const { host } = expose(gateway, guest, { visibility: "public" });
    const outgoing = request({ port: gateway.port, path: "/flood", headers: { host }, agent: false }).end();
    const [answer] = await once(outgoing, "response");
    answer.pause();
    let before = -1;
    while (before !== sent) {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(sent).toBeLessThan(64 << 20);
    const stalled = sent;
    answer.resume();
    while (sent < stalled + (16 << 20)) await new Promise((resolve) => setTimeout(resolve, 10));
    outgoing.destroy();
  });
});

describe("a connection of a visitor", () => {
  test("serves request after request, each with a connection to the guest of its own, and gathers nothing", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    const { host } = expose(gateway, guest, { visibility: "public" });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const ports = new Set<number>();
    const guestPorts = new Set<number>();
    guest.server.on("connection", (socket) => guestPorts.add(socket.remotePort ?? 0));
    for (let i = 0; i < 30; i++) {
      const outgoing = request({ port: gateway.port, headers: { host }, agent }).end();
      const [answer] = await once(outgoing, "response");
      ports.add(outgoing.socket?.localPort ?? 0);
      await once(answer.resume(), "end");
    }
    agent.destroy();
    process.off("warning", note);
    expect([ports.size, guestPorts.size]).toEqual([1, 30]);
    expect(warnings).toEqual([]);
  });
});

describe("a port that nothing listens on", () => {
  test("is a page that names the port and says to bind 0.0.0.0; programs get it as text", async () => {
    const nobody = await startGuest(() => undefined);
    await stopGuest(nobody);
    const { host } = expose(gateway, nobody, { visibility: "public" });
    const page = await get(gateway, host, "/", { headers: NAVIGATION });
    expect(page.status).toBe(502);
    expect(page.headers["content-type"]).toBe("text/html; charset=utf-8");
    expect(page.body).toContain(`port ${nobody.port}`);
    expect(page.body).toContain(`0.0.0.0:${nobody.port}`);
    expect(page.body).not.toMatch(/<(script|link|img)|https?:/);
    const text = await get(gateway, host);
    expect([text.status, text.headers["content-type"]]).toEqual([502, "text/plain; charset=utf-8"]);
    const json = await get(gateway, host, "/", { headers: { accept: "application/json" } });
    expect(JSON.parse(json.body).text).toContain(`0.0.0.0:${nobody.port}`);
  });
});
