/**
 * What a guest can reach, on real machines: security.md C4 row by row, and N-01, N-03, N-04, N-05, N-08, N-09, N-10.
 * Every row says what arrives in the world, by the world's own counters; a row that reaches nothing has one beside it
 * that reaches something, or a defence is taken away at the end.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  buildHello,
  captureHello,
  extension,
  serverNames,
  toRecords,
} from "../../packages/gateway/test-support/hello.ts";
import { NEVER, PUBLIC } from "../support/world/addresses.ts";
import { dropRules, netnsOf, openedTo } from "../support/world/defences.ts";
import { type Guest, hex, type Outcome, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const NAMES = [
  "EXAMPLE.com.",
  "*.wild.example.com",
  "port.example.com:9000",
  "private.example.com",
  "inner.example.com",
  PUBLIC.second,
  `${PUBLIC.mail}:22`,
];
const ZONE = {
  "example.com": { a: [PUBLIC.allowed] },
  "*.example.com": { a: [PUBLIC.allowed] },
  "port.example.com": { a: [PUBLIC.bulk] },
  "private.example.com": { a: [NEVER.metadata] },
  "inner.example.com": { a: [NEVER.ten] },
  "notexample.com": { a: [PUBLIC.denied] },
  "*.example.net": { a: [PUBLIC.denied] },
  "metadata.google.internal": { a: [NEVER.metadata] },
};

const GUEST_MAC = "020000000002";
/** ARP: the gateway's address is here. */
const FALSE_GATEWAY = `ffffffffffff${GUEST_MAC}0806${"0001080006040002"}${GUEST_MAC}0ac80001ffffffffffff2d5a1c14`;
/** An IPv6 router advertisement. */
const ADVERTISEMENT = [
  ...[`333300000001${GUEST_MAC}86dd`, "6000000000103aff"],
  ...[`fe80${"0".repeat(27)}1`, `ff02${"0".repeat(27)}1`, "8600000040000708", "0".repeat(16)],
].join("");

let network: Network;
const guests: Record<string, Guest> = {};

beforeAll(async () => {
  network = await startNetwork();
  await network.world.say(ZONE);
  guests.nothing = await network.guest({ egress: { mode: "deny", allow: [] } });
  guests.names = await network.guest({ egress: { mode: "deny", allow: NAMES } });
  guests.open = await network.guest();
});
afterAll(() => network?.close());

const guestOf = (policy: string) => guests[policy] as Guest;

/** Where packets arrived since `forget`, our own name server left out. */
const reached = () =>
  [...new Set(network.world.namespace.counted().map(({ address }) => address))]
    .filter((address) => address !== PUBLIC.resolver)
    .toSorted();

/** Names, each once: a question is asked again when its answer is late. */
async function asked(): Promise<string[]> {
  const events = await network.world.take();
  return [...new Set(events.flatMap((event) => (event.kind === "dns" ? [event.name] : [])))];
}

async function tryIt(policy: string, probe: Probe): Promise<Outcome> {
  await network.world.settle();
  await network.world.forget();
  return await guestOf(policy).one(probe);
}

const tls = (name: string | undefined, host: string = PUBLIC.allowed): Probe => ({
  ...{ op: "tls", host, port: 443 },
  ...(name !== undefined && { name }),
});
const http = (text: string, more: object = {}): Probe => ({
  ...{ op: "tcp", host: PUBLIC.denied, port: 80, chunks: [hex(text)] },
  ...more,
});
const tcp = (host: string, port: number): Probe => ({ op: "tcp", host, port, chunks: [hex("hello")] });
const udp = (host: string, port: number): Probe => ({ op: "udp", host, port, chunks: [hex("hello")] });

describe("deny with an empty list", () => {
  const STRANGERS: [string, Probe][] = [
    ["TLS with a name", tls("example.com")],
    ["HTTP with a Host", http("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")],
    ["TCP", tcp(PUBLIC.denied, 9000)],
    ["ssh", tcp(PUBLIC.denied, 22)],
    ["mail", tcp(PUBLIC.mail, 25)],
    ["submission over TLS", tcp(PUBLIC.mail, 465)],
    ["submission", tcp(PUBLIC.mail, 587)],
    ["DNS over TLS", tcp(PUBLIC.strangeResolver, 853)],
    ["UDP", udp(PUBLIC.denied, 9000)],
    ["QUIC", udp(PUBLIC.denied, 443)],
    ["DNS over QUIC", udp(PUBLIC.denied, 853)],
    ["ping", { op: "ping", host: PUBLIC.denied }],
    ["IPv6 in IPv4", { op: "ip", host: PUBLIC.denied, protocol: 41 }],
    ["GRE", { op: "ip", host: PUBLIC.denied, protocol: 47 }],
    [
      "a name server of the guest's choice",
      { op: "dns", name: "example.com", server: PUBLIC.strangeResolver },
    ],
    ["the same over TCP", { op: "dns", name: "example.com", server: PUBLIC.strangeResolver, tcp: true }],
    ["our name server", { op: "dns", name: "example.com" }],
  ];

  test.each(STRANGERS)("%s: not one packet leaves, nor a question", async (_what, probe) => {
    await tryIt("nothing", probe);
    expect(reached()).toEqual([]);
    expect(network.world.namespace.counted()).toEqual([]);
    expect(await asked()).toEqual([]);
  });

  test("names are refused", async () => {
    const names = ["example.com", "nobody.example.org", "a".repeat(63), "secret-data.attacker.example.net"];
    for (const name of names) expect(await tryIt("nothing", { op: "dns", name })).toMatchObject({ rcode: 5 });
    expect(await asked()).toEqual([]);
  });

  test("frames of other protocols stay where they are", async () => {
    await tryIt("nothing", { op: "frame", chunks: [FALSE_GATEWAY, ADVERTISEMENT] });
    expect(network.world.namespace.strangeFrames()).toBe(0);
    expect(reached()).toEqual([]);
  });

  test("in mode allow the same arrives", async () => {
    const arriving = STRANGERS.slice(0, 12).filter(
      ([what]) => !/over TLS$|over QUIC/.test(what) || /mail|submission/.test(what),
    );
    for (const [what, probe] of arriving) {
      const { error } = await tryIt("open", probe);
      expect([what, error]).toEqual([what, undefined]);
      expect([what, reached()]).toEqual([what, ["host" in probe ? probe.host : ""]]);
    }
    expect(await tryIt("open", { op: "dns", name: "example.com" })).toMatchObject({ a: [PUBLIC.allowed] });
    expect(await asked()).toEqual(["example.com"]);
  });
});

describe("names over TLS", () => {
  const HELLO = "hello from";
  test.each([
    ["an allowed name", "example.com"],
    ["in other letters", "EXAMPLE.com"],
    ["below a wildcard", "a.wild.example.com"],
    ["far below a wildcard", "a.b.wild.example.com"],
  ])("%s is let through, to where we find it", async (_what, name) => {
    const { got } = await tryIt("names", tls(name, PUBLIC.denied));
    expect(got).toContain(`${HELLO} ${name}`);
    expect(reached()).toEqual([PUBLIC.allowed]);
  });

  test.each([
    ["a name below an allowed one", "www.example.com"],
    ["one that begins like it", "example.com.example.net"],
    ["one that ends like it", "notexample.com"],
    ["a wildcard's own name", "wild.example.com"],
    ["one that ends like a wildcard", "evil-wild.example.com"],
    ["a name with another port's entry", "port.example.com"],
    ["no name", undefined],
    ["a name that leads to a metadata service", "private.example.com"],
    ["a name that leads to a private host", "inner.example.com"],
  ])("%s is not", async (_what, name) => {
    const { got } = await tryIt("names", tls(name));
    expect(got ?? "").toBe("");
    expect(reached()).toEqual([]);
  });

  const outer = (name: string, ...more: Buffer[]) => toRecords(buildHello([serverNames([name]), ...more]));
  const hello = (bytes: Buffer, more: object = {}): Probe => ({
    ...{ op: "tcp", host: PUBLIC.allowed, port: 443, chunks: [bytes.toString("hex")], wait: 12 },
    ...more,
  });
  const inTwelve = (bytes: Buffer) =>
    Array.from({ length: 12 }, (_, at) => {
      const size = Math.ceil(bytes.length / 12);
      return bytes.subarray(at * size, (at + 1) * size).toString("hex");
    });
  const real = (name: string) => captureHello({ servername: name });

  test("a hello in twelve segments, or in three records, is read like any other", async () => {
    const allowed = await real("example.com");
    await tryIt("names", hello(allowed, { chunks: inTwelve(allowed), gap: 0.05, wait: 4 }));
    expect(reached()).toEqual([PUBLIC.allowed]);
    const inRecords = (bytes: Buffer) => toRecords(bytes.subarray(5), Math.ceil(bytes.length / 3));
    await tryIt("names", hello(inRecords(allowed), { wait: 4 }));
    expect(reached()).toEqual([PUBLIC.allowed]);
    const denied = await real("www.example.com");
    for (const probe of [hello(denied, { chunks: inTwelve(denied), gap: 0.05 }), hello(inRecords(denied))]) {
      expect((await tryIt("names", probe)).end).not.toBe("open");
      expect(reached()).toEqual([]);
    }
  });

  test("a hello of the oldest version, and one with an encrypted inner name, are judged by the outer name", async () => {
    const grease = extension(0xfe0d, Buffer.alloc(180, 1));
    const oldest = (name: string) => toRecords(buildHello([serverNames([name])], 0x0301), 16_384, 0x0301);
    for (const bytes of [oldest("example.com"), outer("example.com", grease)]) {
      await tryIt("names", hello(bytes, { wait: 2 }));
      expect(reached()).toEqual([PUBLIC.allowed]);
    }
    for (const bytes of [oldest("www.example.com"), outer("cover.example.net", grease)]) {
      expect((await tryIt("names", hello(bytes))).end).not.toBe("open");
      expect(reached()).toEqual([]);
    }
  });

  test.each([
    ["an address instead of a name", () => outer(PUBLIC.allowed)],
    ["two names", () => toRecords(buildHello([serverNames(["example.com", "www.example.com"])]))],
    ["the name twice", () => outer("example.com", serverNames(["www.example.com"]))],
    ["a hello of 40 KiB", () => outer("example.com", extension(21, Buffer.alloc(40 * 1024)))],
    ["no extension at all", () => toRecords(buildHello(undefined))],
    ["random bytes", () => Buffer.from("0123456789abcdef".repeat(30))],
    ["ssh", () => Buffer.from("SSH-2.0-OpenSSH_9.2\r\n")],
    ["half a hello", () => outer("example.com").subarray(0, 40)],
    ["nothing", () => Buffer.alloc(0)],
  ])("%s: closed, and nobody hears of it", async (_what, bytes) => {
    const { end, got } = await tryIt("names", hello(bytes()));
    expect([got, end]).not.toEqual([got, "open"]);
    expect(got).toBe("");
    expect(reached()).toEqual([]);
  });
});

describe("names over HTTP", () => {
  const request = (...lines: string[]) => http(`${lines.join("\r\n")}\r\n\r\n`);

  test("an allowed Host is let through, to where we find it", async () => {
    const { got } = await tryIt("names", request("GET / HTTP/1.1", "Host: EXAMPLE.com"));
    expect(got).toContain("hello from");
    expect(reached()).toEqual([PUBLIC.allowed]);
    const absolute = await tryIt("names", request("GET http://example.com/ HTTP/1.1", "Host: example.com"));
    expect(absolute.got).toContain("hello from");
  });

  test.each([
    ["another Host", request("GET / HTTP/1.1", "Host: www.example.com"), 403],
    ["no Host", request("GET / HTTP/1.1"), 400],
    ["two Hosts", request("GET / HTTP/1.1", "Host: example.com", "Host: www.example.com"), 400],
    [
      "an allowed one with another behind it",
      request("GET / HTTP/1.1", "Host: example.com@example.net"),
      400,
    ],
    ["a line of its own in Host", request("GET / HTTP/1.1", "Host: example.com\texample.net"), 400],
    ["a target of another host", request("GET http://a.example.net/ HTTP/1.1", "Host: example.com"), 400],
    ["CONNECT", request("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443"), 400],
    [
      "an upgrade to HTTP/2",
      request(
        ...["GET / HTTP/1.1", "Host: example.com", "Connection: Upgrade, HTTP2-Settings"],
        ...["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
      ),
      400,
    ],
    ["HTTP/2 from the start", request("PRI * HTTP/2.0", "", "SM"), 400],
    [
      "two lengths",
      http(
        "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
      ),
      400,
    ],
    ["a metadata service's name", request("GET / HTTP/1.1", "Host: private.example.com"), 403],
  ])("%s is answered by us, and nobody hears of it", async (_what, probe, status) => {
    const { got, end } = await tryIt("names", probe);
    expect(got?.split(" ")[1]).toBe(String(status));
    expect(end).not.toBe("open");
    expect(reached()).toEqual([]);
  });

  test("the second request of a connection is judged like the first", async () => {
    const first = "GET /first HTTP/1.1\r\nHost: example.com\r\n\r\n";
    const second = "GET /second HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
    const good = "GET /good HTTP/1.1\r\nHost: example.com\r\n\r\n";
    const two = (text: string): Probe => http("", { chunks: [hex(first), hex(text)], gap: 0.5 });
    await tryIt("names", two(good));
    const urls = async () =>
      (await network.world.take()).flatMap((e) => (e.kind === "request" ? [e.url] : []));
    expect(await urls()).toEqual(["/first", "/good"]);
    const { end } = await tryIt("names", two(second));
    expect(end).toBe("closed");
    expect(await urls()).toEqual(["/first"]);
    const atOnce = await tryIt("names", http(first + second));
    expect(atOnce.end).toBe("closed");
    expect(await urls()).not.toContain("/second");
  });

  test("a header of 100 MiB ends early", async () => {
    const start = "GET / HTTP/1.1\r\nHost: example.com\r\nX: ";
    const chunks = [hex(start), "61".repeat(16 * 1024)];
    const { end } = await tryIt("names", http("", { chunks, again: 6_400, wait: 10 }));
    expect(end).not.toBe("open");
    expect(reached()).toEqual([]);
  });
});

describe("what has no name on the wire", () => {
  test("a port of a name is open once the name was asked for, on that port alone", async () => {
    expect((await tryIt("names", tcp(PUBLIC.bulk, 9000))).error).toBe("ECONNREFUSED");
    expect(reached()).toEqual([]);
    expect(await tryIt("names", { op: "dns", name: "port.example.com" })).toMatchObject({ a: [PUBLIC.bulk] });
    expect((await tryIt("names", tcp(PUBLIC.bulk, 9000))).got).toBe("hello");
    for (const port of [22, 8080, 80, 443]) {
      await tryIt("names", tcp(PUBLIC.bulk, port));
      expect([port, reached()]).toEqual([port, []]);
    }
    await tryIt("names", udp(PUBLIC.bulk, 9000));
    expect(reached()).toEqual([]);
  });

  test("a bare address is open on every port but that of QUIC, whatever names are said there", async () => {
    expect((await tryIt("names", tcp(PUBLIC.second, 22))).got).toBe("hello");
    expect((await tryIt("names", udp(PUBLIC.second, 9000))).got).toBe("hello");
    expect((await tryIt("names", tls("www.example.com", PUBLIC.second))).got).toContain("hello from www");
    expect(reached()).toEqual([PUBLIC.second]);
    for (const probe of [udp(PUBLIC.second, 443), { op: "ping", host: PUBLIC.second } as const]) {
      await tryIt("names", probe);
      expect([probe, reached()]).toEqual([probe, []]);
    }
  });

  test("a bare address with a port is open on that port", async () => {
    expect((await tryIt("names", tcp(PUBLIC.mail, 22))).got).toBe("hello");
    for (const probe of [tcp(PUBLIC.mail, 25), tcp(PUBLIC.mail, 443), udp(PUBLIC.mail, 9000)]) {
      await tryIt("names", probe);
      expect([probe, reached()]).toEqual([probe, []]);
    }
  });

  test("DNS over TLS is refused in both modes, and every 53 is ours", async () => {
    for (const policy of ["names", "open"]) {
      expect((await tryIt(policy, tcp(PUBLIC.second, 853))).error).toBe("ECONNREFUSED");
      await tryIt(policy, { op: "dns", name: "example.com", server: PUBLIC.strangeResolver });
      const overTcp = { op: "dns", name: "example.com", server: PUBLIC.strangeResolver, tcp: true } as const;
      expect((await tryIt(policy, overTcp)).a).toEqual([PUBLIC.allowed]);
      expect(reached()).toEqual([]);
    }
  });
});

describe("never", () => {
  const SPELLINGS = [
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
  ];

  test.each(Object.entries(NEVER))("%s is reached by nobody", async (_name, host) => {
    for (const policy of ["names", "open"]) {
      await network.world.settle();
      await network.world.forget();
      await guestOf(policy).probe(
        ...[80, 443, 53, 9000].map((port) => ({ ...tcp(host, port), wait: 2 }) as Probe),
        ...[tls("example.com", host), udp(host, 9000), { op: "ping", host } as const],
      );
      const others = reached().filter((address) => address !== PUBLIC.allowed);
      expect([policy, others]).toEqual([policy, []]);
    }
  });

  test("not under any spelling, nor by a redirect", async () => {
    await network.world.settle();
    await network.world.forget();
    const urls = [...SPELLINGS, "metadata.google.internal", "private.example.com"].map(
      (host) => `http://${host}/`,
    );
    for (const policy of ["names", "open"]) {
      const script = urls.map((url) => `curl -s -m 5 -g -o /dev/null '${url}'`).join("; ");
      await guestOf(policy).tries(`${script}; true`);
      const redirect = `http://example.com/redirect?to=http://${NEVER.metadata}/`;
      await guestOf(policy).tries(`curl -s -m 5 -L '${redirect}'`);
    }
    expect(reached()).toEqual([PUBLIC.allowed]);
    const urlsSeen = (await network.world.take()).flatMap((e) => (e.kind === "request" ? [e.host] : []));
    expect(new Set(urlsSeen)).toEqual(new Set([PUBLIC.allowed]));
  });

  test("a guest for whom the rules are taken away reaches it", async () => {
    const { facts } = network;
    const open = guestOf("open");
    await openedTo(netnsOf(facts, open.id), NEVER.metadata, async () => {
      expect((await tryIt("open", tcp(NEVER.metadata, 9000))).got).toBe("hello");
      expect(reached()).toEqual([NEVER.metadata]);
    });
    expect((await tryIt("open", tcp(NEVER.metadata, 9000))).error).toBe("ECONNREFUSED");
  });
});

test("without the rule against them, other protocols of IP would be seen here", async () => {
  const { facts } = network;
  const netns = netnsOf(facts, guestOf("open").id);
  dropRules(netns, "guard", "meta l4proto != ");
  await openedTo(netns, PUBLIC.denied, async () => {
    await tryIt("open", { op: "ip", host: PUBLIC.denied, protocol: 47 });
    await expect
      .poll(() => network.world.namespace.counted(), { timeout: 10_000 })
      .toMatchObject([{ address: PUBLIC.denied, protocol: expect.stringMatching(/gre|47/) }]);
  });
});

describe("entries", () => {
  test.each([
    "*",
    "*.com",
    "*.co.uk",
    "10.0.0.5",
    "169.254.169.254",
    "168.63.129.16",
    "10.0.0.0/8",
    "::ffff:10.0.0.1",
    "[::1]",
    "http://example.com/",
    "user@example.com",
    "example.com/path",
    "foo",
    "localhost",
    "printer.local",
    "a..b",
    "a b.com",
    " example.com",
    "0x7f.1",
    "127.1",
    "0177.0.0.1",
    "2130706433",
    "017700000001",
    "１.１.１.１",
    "dns.google",
    "cloudflare-ech.com",
    "example.com:0",
    "example.com:65536",
  ])("%s is refused in both modes, by its place", async (entry) => {
    for (const mode of ["allow", "deny"]) {
      const path = `/v1/sessions/${guestOf("names").id}/egress`;
      const { status, body } = await network.ask(path, { body: { mode, allow: ["example.com", entry] } });
      expect([mode, status]).toEqual([mode, 400]);
      expect(String(body.error)).toContain("allow[1]");
    }
  });

  test("others are told back as they are understood", async () => {
    const guest = guestOf("nothing");
    const allow = ["Example.COM.", "münchen.de", "example.com", "*.Wild.example.com:8443", "8.8.4.4:22"];
    const path = `/v1/sessions/${guest.id}/egress`;
    const { body } = await network.ask(path, { body: { mode: "deny", allow } });
    const normal = ["example.com", "xn--mnchen-3ya.de", "*.wild.example.com:8443", "8.8.4.4:22"];
    expect(body).toEqual({ session_id: guest.id, mode: "deny", allow: normal });
    expect((await network.ask(path)).body).toEqual(body);
    const typo = await network.ask(path, { body: { mode: "deny", alow: ["example.com"] } });
    expect(typo.status).toBe(400);
  });
});
