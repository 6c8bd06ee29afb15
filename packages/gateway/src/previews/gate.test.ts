import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  expose,
  type Gateway,
  type Guest,
  get,
  mintToken,
  NAVIGATION,
  openUpgrade,
  sendRaw,
  sha256,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

let gateway: Gateway;
let guest: Guest;

beforeAll(async () => {
  gateway = await startGateway();
  guest = await startGuest((request, response) => response.end(`guest ${request.url}`));
});

afterAll(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
});

const cookieOf = (setCookie: string[] | undefined) => setCookie?.[0]?.split(";")[0] ?? "";

async function enter(host: string, token: string): Promise<string> {
  const reply = await get(gateway, host, `/?t=${token}`, { headers: NAVIGATION });
  return cookieOf(reply.headers["set-cookie"]);
}

describe("the host (P-01)", () => {
  test("a host that is not exactly that of a preview is the plain 404 or a 400, and never reaches a guest", async () => {
    const { route, host } = expose(gateway, guest, { visibility: "public" });
    const id = route.session_id;
    const { port } = guest;
    const end = `localhost:${gateway.port}`;
    const before = guest.heads.length;
    const wrong = [
      `0-${id}.${end}`,
      `65536-${id}.${end}`,
      `0${port}-${id}.${end}`,
      `${port}-${id}x.${end}`,
      `${port}-${id.slice(1)}.${end}`,
      `${port}-${"a".repeat(64)}.${end}`,
      `${port}-${id}.localhost`,
      `${port}-${id}.localhost:${gateway.port + 1}`,
      `${port}-${id}.localhost.:${gateway.port}`,
      `${port}-${id}.${end}.`,
      `x.${port}-${id}.${end}`,
      `${port}-${id}.localhost.evil.example:${gateway.port}`,
      `${port}-${id}.evillocalhost:${gateway.port}`,
      `${port}-${id}\u00e9.${end}`,
      `${port}--${id}.${end}`,
      `-${port}-${id}.${end}`,
      `user@${port}-${id}.${end}`,
      `127.0.0.1:${gateway.port}`,
      "[::1]",
      "",
    ];
    for (const name of wrong) {
      const answer = await sendRaw(
        gateway.port,
        `GET / HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`,
      );
      expect(answer.slice(0, 12), name).toMatch(/^HTTP\/1\.1 40[04]$/);
    }
    for (const head of [
      `GET / HTTP/1.1\r\nConnection: close\r\n\r\n`,
      `GET / HTTP/1.1\r\nHost: ${host}\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      `GET / HTTP/1.0\r\n\r\n`,
      `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
      `CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    ]) {
      expect(await sendRaw(gateway.port, head), head).toMatch(/^(HTTP\/1\.1 40[04]|$)/);
    }
    expect(guest.heads.length).toBe(before);
  });

  test("the right host reaches its guest, in upper case too", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    expect((await get(gateway, host, "/a")).body).toBe("guest /a");
    expect((await get(gateway, host.toUpperCase(), "/b")).body).toBe("guest /b");
  });
});

describe("the plain 404 (P-02)", () => {
  test("is the same to the byte for everything that must stay unknown, and wakes nothing", async () => {
    const live = expose(gateway, guest);
    const paused = expose(gateway, guest, { state: "paused" });
    const asleep = expose(gateway, guest, { state: "paused", wake_on_http: false });
    const gone = expose(gateway, guest, { state: "gone" });
    const other = expose(gateway, guest);
    const before = guest.heads.length;
    const replies = [
      await get(gateway, live.host.replace(live.route.session_id, "a".repeat(21))),
      await get(gateway, live.host.replace(/^\d+/, "1")),
      await get(gateway, live.host),
      await get(gateway, live.host, `/?t=${mintToken()}`),
      await get(gateway, live.host, `/?t=${other.token}`),
      await get(gateway, live.host, "/", { headers: { "vivarium-preview-token": other.token } }),
      await get(gateway, live.host, "/", { headers: { cookie: await enter(other.host, other.token) } }),
      await get(gateway, paused.host, `/?t=${mintToken()}`),
      await get(gateway, paused.host),
      await get(gateway, asleep.host, `/x?t=${asleep.token}`),
      await get(gateway, gone.host),
      await get(gateway, live.host, "/", { headers: { accept: "application/json" } }),
      await get(gateway, live.host, "/", { headers: NAVIGATION }),
      await get(gateway, "nobody.example"),
    ];
    const first = replies[0];
    for (const reply of replies) {
      expect(reply.status).toBe(404);
      expect(reply.body).toBe(first?.body);
      expect({ ...reply.headers, date: "" }).toEqual({ ...first?.headers, date: "" });
    }
    expect(gateway.wakes).toEqual([]);
    expect(guest.heads.length).toBe(before);
  });

  test("answers upgrades as well", async () => {
    const { host } = expose(gateway, guest);
    const { head } = await openUpgrade(gateway, host, "/", { origin: `http://${host}` });
    expect(head).toMatch(/^HTTP\/1\.1 404 /);
  });
});

describe("the token", () => {
  test("in a link becomes a cookie, and the browser is sent to the same page without it", async () => {
    const { host, token } = expose(gateway, guest);
    const reply = await get(gateway, host, `//x/y?a=1&t=${token}&b=%20#z`, { headers: NAVIGATION });
    expect(reply.status).toBe(302);
    expect(reply.headers.location).toBe(`http://${host}//x/y?a=1&b=%20#z`);
    expect(reply.headers["cache-control"]).toBe("no-store");
    expect(reply.headers["referrer-policy"]).toBe("no-referrer");
    const [cookie] = reply.headers["set-cookie"] ?? [];
    expect(cookie).toMatch(/^viv_pv=\d+\.[\w-]{43}; Path=\/; Max-Age=86400; HttpOnly; SameSite=Lax$/);
    const page = await get(gateway, host, "/page", {
      headers: { cookie: `a=b; ${cookieOf([cookie ?? ""])}` },
    });
    expect(page.body).toBe("guest /page");
  });

  test("in a link of a plain client that accepts pages is taken for a navigation", async () => {
    const { host, token } = expose(gateway, guest);
    const reply = await get(gateway, host, `/?t=${token}`, { headers: { accept: "text/html,*/*" } });
    expect(reply.status).toBe(302);
  });

  test("lets any other request in at once, with the cookie and without the token", async () => {
    const { host, token } = expose(gateway, guest);
    const reply = await get(gateway, host, `/api?t=${token}&x=1`, { method: "POST", body: "{}" });
    expect(reply.body).toBe("guest /api?x=1");
    expect(cookieOf(reply.headers["set-cookie"])).toMatch(/^viv_pv=/);
  });

  test("is taken from a header", async () => {
    const { host, token } = expose(gateway, guest);
    const reply = await get(gateway, host, "/h", { headers: { "Vivarium-Preview-Token": token } });
    expect(reply.body).toBe("guest /h");
  });

  test("is not confused with the times that development servers put into `t`", async () => {
    const { host, token } = expose(gateway, guest);
    const cookie = await enter(host, token);
    const reply = await get(gateway, host, "/src/a.js?t=1712345678901", { headers: { cookie } });
    expect(reply.body).toBe("guest /src/a.js?t=1712345678901");
  });
});

describe("the gate cookie", () => {
  test("opens its own host in its own version and nothing else", async () => {
    const one = expose(gateway, guest);
    const two = expose(gateway, guest, { cookie_key: one.route.cookie_key });
    const cookie = await enter(one.host, one.token);
    const statusAt = async (host: string) => (await get(gateway, host, "/", { headers: { cookie } })).status;
    expect(await statusAt(one.host)).toBe(200);
    expect(await statusAt(two.host)).toBe(404);
    gateway.tables.putRoute({ ...one.route, version: 2 });
    expect(await statusAt(one.host)).toBe(404);
    gateway.tables.putRoute(one.route);
    expect(await statusAt(one.host)).toBe(200);
  });

  test("cannot be made to last, and is found beside planted ones", async () => {
    const { host, token } = expose(gateway, guest);
    const cookie = await enter(host, token);
    const later = cookie.replace(/=(\d+)/, (_, seconds) => `=${Number(seconds) + 1}`);
    expect((await get(gateway, host, "/", { headers: { cookie: later } })).status).toBe(404);
    expect((await get(gateway, host, "/", { headers: { cookie: `viv_pv=evil; ${cookie}` } })).status).toBe(
      200,
    );
  });

  test("is not enough for what a page of another session asks; links from there work", async () => {
    const one = expose(gateway, guest);
    const two = expose(gateway, guest);
    const cookie = await enter(one.host, one.token);
    const status = async (headers: Record<string, string>, method = "GET") =>
      (await get(gateway, one.host, "/", { method, headers: { cookie, ...headers } })).status;
    const foreign = { "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors" };
    expect(await status({ origin: `http://${two.host}` }, "POST")).toBe(404);
    expect(await status({ origin: "null" }, "POST")).toBe(404);
    expect(await status({ ...foreign, referer: `http://${two.host}/` })).toBe(404);
    expect(await status(foreign)).toBe(404);
    expect(await status({ ...foreign, "sec-fetch-mode": "navigate", referer: `http://${two.host}/` })).toBe(
      200,
    );
    expect(await status({ origin: `http://${one.host}` }, "POST")).toBe(200);
    const beside = one.host.replace(/^\d+/, "3000");
    expect(await status({ ...foreign, origin: `http://${beside}` }, "POST")).toBe(200);
  });

  test("has the name that browsers bind to host and https where previews are secure", async () => {
    const secure = await startGateway({ secure: true, publicPort: 443, nodeDomain: "previews.example" });
    const { route, token } = expose(secure, guest);
    const host = `${route.port}-${route.session_id}.previews.example`;
    const reply = await get(secure, host, `/?t=${token}`, { headers: NAVIGATION });
    await secure.previews.close();
    expect(reply.headers.location).toBe(`https://${host}/`);
    expect(reply.headers["set-cookie"]?.[0]).toMatch(
      /^__Host-viv_pv=.*; Path=\/; .*HttpOnly; SameSite=Lax; Secure$/,
    );
  });
});

describe("bearer (P-08)", () => {
  const bearer = mintToken();

  test("anything but one matching header is 401, before the token is looked at", async () => {
    const { host, token } = expose(gateway, guest, { bearer_sha256: sha256(bearer) });
    const before = guest.heads.length;
    const wrong: Record<string, string | string[]>[] = [
      {},
      { authorization: `Bearer ${mintToken()}` },
      { authorization: `bearer ${bearer}` },
      { authorization: bearer },
      { authorization: `Basic ${bearer}` },
      { authorization: `Bearer  ${bearer}` },
      { authorization: `Bearer ${bearer}, Bearer ${bearer}` },
    ];
    for (const headers of wrong) {
      const reply = await get(gateway, host, `/?t=${token}`, { headers });
      expect(reply.status, JSON.stringify(headers)).toBe(401);
      expect(reply.headers["www-authenticate"]).toBe("Bearer");
    }
    const twice = `GET /?t=${token} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${bearer}\r\nAuthorization: Bearer ${bearer}\r\nConnection: close\r\n\r\n`;
    expect(await sendRaw(gateway.port, twice)).toMatch(/^HTTP\/1\.1 401 /);
    expect(guest.heads.length).toBe(before);
  });

  test("both gates must open, and the header that matched stays outside", async () => {
    const { host, token } = expose(gateway, guest, { bearer_sha256: sha256(bearer) });
    const headers = { authorization: `Bearer ${bearer}` };
    expect((await get(gateway, host, "/", { headers })).status).toBe(404);
    expect((await get(gateway, host, `/?t=${token}`, { headers })).body).toBe("guest /");
    expect(guest.heads.at(-1)).not.toMatch(/authorization/i);
  });

  test("an Authorization header of the program's own passes where there is no bearer gate", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    await get(gateway, host, "/", { headers: { authorization: "Basic eDp5" } });
    expect(guest.heads.at(-1)).toMatch(/authorization: Basic eDp5/i);
  });
});

describe("a service worker, which would be shown the link with the token before the gateway is", () => {
  const headers: Record<string, string> = { "service-worker": "script" };

  test("is not there where a token lets in, and its script is never asked of the guest", async () => {
    const { host, token, route } = expose(gateway, guest);
    const cookie = await enter(host, token);
    const before = guest.heads.length;
    for (const [name, value] of [
      ["cookie", cookie],
      ["vivarium-preview-token", token],
    ] as const) {
      expect((await get(gateway, host, "/sw.js", { headers: { ...headers, [name]: value } })).status).toBe(
        404,
      );
    }
    expect((await get(gateway, host, `/sw.js?t=${token}`, { headers })).status).toBe(404);
    gateway.tables.putRoute({ ...route, bearer_sha256: sha256("x") });
    expect((await get(gateway, host, "/sw.js", { headers: { ...headers, cookie } })).status).toBe(401);
    expect(guest.heads.length).toBe(before);
  });

  test("is not there on a public route either: it would outlast a change to one with a token", async () => {
    const { host } = expose(gateway, guest, { visibility: "public" });
    const before = guest.heads.length;
    expect((await get(gateway, host, "/sw.js", { headers })).status).toBe(404);
    expect(guest.heads.length).toBe(before);
  });

  test("has a file that everybody gets who does not ask for a worker", async () => {
    const open = expose(gateway, guest, { visibility: "public" });
    expect((await get(gateway, open.host, "/sw.js")).body).toBe("guest /sw.js");
    const { host, token } = expose(gateway, guest);
    const cookie = await enter(host, token);
    expect((await get(gateway, host, "/sw.js", { headers: { cookie } })).body).toBe("guest /sw.js");
  });
});

describe("login_url", () => {
  const login_url = "https://app.example/login?next=%2F";

  test("takes browsers that are not let in; programs get the plain 404, or 401 under bearer", async () => {
    const { host, route } = expose(gateway, guest, { login_url });
    const browser = await get(gateway, host, "/", { headers: NAVIGATION });
    expect([browser.status, browser.headers.location]).toEqual([302, login_url]);
    expect(browser.headers["cache-control"]).toBe("no-store");
    expect((await get(gateway, host)).status).toBe(404);
    gateway.tables.putRoute({ ...route, bearer_sha256: sha256("x") });
    expect((await get(gateway, host)).status).toBe(401);
    expect((await get(gateway, host, "/", { headers: NAVIGATION })).headers.location).toBe(login_url);
  });

  test("does not come between a visitor who is let in and the guest", async () => {
    const { host, token } = expose(gateway, guest, { login_url });
    const cookie = await enter(host, token);
    expect((await get(gateway, host, "/in", { headers: { ...NAVIGATION, cookie } })).body).toBe("guest /in");
  });
});
