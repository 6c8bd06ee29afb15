import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  expose,
  type Gateway,
  type Guest,
  get,
  openUpgrade,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";
import { compileProxies } from "./trusted-proxies.ts";

/** Requests come from 127.0.0.1: the proxy that the first trusts, and a stranger to the others. */
let trusting: Gateway;
let trustingAnother: Gateway;
let trustingNobody: Gateway;
let guest: Guest;

beforeAll(async () => {
  trusting = await startGateway({ trustedProxies: ["127.0.0.1", "10.0.0.0/8", "2001:db8:1::/48"] });
  trustingAnother = await startGateway({ trustedProxies: ["127.0.0.9", "10.0.0.0/8"] });
  trustingNobody = await startGateway();
  guest = await startGuest(
    (_message, response) => response.end("plain"),
    (_message, socket) => socket.end("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"),
  );
});

afterAll(async () => {
  for (const { previews } of [trusting, trustingAnother, trustingNobody]) await previews.close();
  await stopGuest(guest);
});

type Sent = Record<string, string | string[]>;

/** The visitor's address and scheme that the guest gets with these headers. */
async function forwardedFor(gateway: Gateway, headers: Sent): Promise<Record<string, string | undefined>> {
  const { host } = expose(gateway, guest, { visibility: "public" });
  expect((await get(gateway, host, "/", { headers })).status).toBe(200);
  return forwardedTo(guest.heads.at(-1) ?? "");
}

function forwardedTo(head: string): Record<string, string | undefined> {
  const lines = [...head.matchAll(/^x-forwarded-([a-z]+): (.*)$/gm)];
  return Object.fromEntries(lines.map(([, name, value]) => [name, value]));
}

const FROM_PROXY: Sent = { "x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https" };

describe("a visitor's address and scheme from a proxy", () => {
  test("is believed from one that is trusted", async () => {
    expect(await forwardedFor(trusting, FROM_PROXY)).toMatchObject({ for: "203.0.113.7", proto: "https" });
  });

  test("is discarded from any other, also where another one is trusted", async () => {
    for (const gateway of [trustingAnother, trustingNobody]) {
      expect(await forwardedFor(gateway, FROM_PROXY)).toMatchObject({ for: "127.0.0.1", proto: "http" });
    }
  });

  test("is believed of a WebSocket as well", async () => {
    const { host } = expose(trusting, guest, { visibility: "public" });
    const headers = { ...FROM_PROXY, origin: `http://${host}` } as Record<string, string>;
    const { socket } = await openUpgrade(trusting, host, "/", headers);
    socket.destroy();
    expect(forwardedTo(guest.heads.at(-1) ?? "")).toMatchObject({ for: "203.0.113.7", proto: "https" });
  });

  test("of host and path is never believed", async () => {
    const sent = { ...FROM_PROXY, "x-forwarded-host": "evil.example", "x-forwarded-prefix": "/evil" };
    const forwarded = await forwardedFor(trusting, {
      ...sent,
      forwarded: "for=6.6.6.6",
      "x-real-ip": "6.6.6.6",
    });
    expect(forwarded.host).toMatch(/\.localhost:\d+$/);
    expect(forwarded.prefix).toBeUndefined();
    expect(guest.heads.at(-1)).not.toMatch(/evil|6\.6\.6\.6/);
  });
});

test.each<[string | string[], string]>([
  ["6.6.6.6, 203.0.113.7", "203.0.113.7"],
  ["6.6.6.6, 203.0.113.7, 10.1.2.3", "203.0.113.7"],
  ["6.6.6.6,203.0.113.7 ,\t10.1.2.3,127.0.0.1", "203.0.113.7"],
  [["6.6.6.6, 203.0.113.7", "10.1.2.3"], "203.0.113.7"],
  ["not an address, 203.0.113.7, 10.1.2.3", "203.0.113.7"],
  ["6.6.6.6, 2001:db8:2::7, 2001:db8:1::1", "2001:db8:2::7"],
  ["::ffff:203.0.113.7, ::ffff:10.1.2.3", "203.0.113.7"],
])("of %j the rightmost address that is no proxy is the visitor", async (list, visitor) => {
  expect((await forwardedFor(trusting, { "x-forwarded-for": list })).for).toBe(visitor);
});

test.each<[string | string[]]>([
  [""],
  [","],
  ["unknown"],
  ["203.0.113.7, unknown"],
  ["203.0.113.7, "],
  ["203.0.113.7,, 10.1.2.3"],
  ["203.0.113.7, _hidden, 10.1.2.3"],
  ["203.0.113.7:443"],
  ["[2001:db8:2::7]"],
  ["fe80::1%eth0"],
  ["0203.0.113.7"],
  ["203.0.113"],
  ["10.1.2.3, 127.0.0.1"],
])("of %j the peer is the visitor: it cannot be read, or names proxies alone", async (list) => {
  expect((await forwardedFor(trusting, { "x-forwarded-for": list })).for).toBe("127.0.0.1");
});

test.each<[string | string[], string]>([
  ["https", "https"],
  ["HTTPS", "https"],
  ["http", "http"],
  ["wss", "http"],
  ["https, http", "http"],
  [["https", "https"], "http"],
  ["", "http"],
])("the scheme %j of a trusted proxy is %s", async (forwarded, scheme) => {
  expect((await forwardedFor(trusting, { "x-forwarded-proto": forwarded })).proto).toBe(scheme);
});

test("without the proxy's headers the guest gets the proxy's own address", async () => {
  expect(await forwardedFor(trusting, {})).toMatchObject({ for: "127.0.0.1", proto: "http" });
});

test("a peer of a socket for both families is its IPv4 address", async () => {
  const both = await startGateway({ listen: { host: "::", port: 0 }, trustedProxies: ["127.0.0.0/8"] });
  try {
    expect(await forwardedFor(both, FROM_PROXY)).toMatchObject({ for: "203.0.113.7" });
    expect(await forwardedFor(both, {})).toMatchObject({ for: "127.0.0.1" });
  } finally {
    await both.previews.close();
  }
});

test("addresses and ranges of both families are trusted, and nothing beside them", () => {
  const isTrusted = compileProxies(["192.0.2.1", "10.0.0.0/8", "2001:db8::/32", "::1", "198.51.100.0/25"]);
  const inside = ["192.0.2.1", "10.255.0.1", "2001:db8:ffff::1", "::1", "198.51.100.127"];
  const outside = ["192.0.2.2", "11.0.0.1", "2001:db9::1", "::2", "198.51.100.128", "", "localhost"];
  expect([inside.filter(isTrusted), outside.filter(isTrusted)]).toEqual([inside, []]);
  expect(compileProxies([])("127.0.0.1")).toBe(false);
});

test.each([
  ["localhost"],
  ["10.0.0.0/33"],
  ["10.0.0.0/"],
  ["10.0.0/8"],
  ["fd00::/129"],
  ["fe80::1%eth0"],
  ["10.0.0.0/8/8"],
  ["10.0.0.0/-1"],
])("%s is no proxy that could be trusted", (entry) => {
  expect(() => compileProxies(["10.0.0.1", entry])).toThrow(`"${entry}" is no address and no range`);
});
