/**
 * Hosts that a guest can reach, on real machines: N-01, N-03, N-04, N-05, N-08, N-09, N-10. Every row lists the packets
 * that arrive in the world, by the world's own counters. A row that reaches nothing has a counterpart that reaches
 * something, or a defence is taken away at the end. The parsing of names and requests is tested in the gateway.
 */
import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
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

type Policy = "nothing" | "names" | "open";
let network: Network;
let guests: Record<Policy, Guest>;

beforeAll(async () => {
  network = await startNetwork();
  await network.world.say(ZONE);
  const [nothing, names, open] = await Promise.all([
    network.guest({ egress: { mode: "deny", allow: [] } }),
    network.guest({ egress: { mode: "deny", allow: NAMES } }),
    network.guest(),
  ]);
  guests = { nothing, names, open };
});
afterAll(() => network?.close());

/** Addresses where packets arrived since `forget`, without our own name server. */
const reached = () =>
  [...new Set(network.world.namespace.counted().map(({ address }) => address))]
    .filter((address) => address !== PUBLIC.resolver)
    .toSorted();

/** Names, each once: a question is asked again when its answer is late. */
async function asked(): Promise<string[]> {
  const events = await network.world.take();
  return [...new Set(events.flatMap((event) => (event.kind === "dns" ? [event.name] : [])))];
}

/** All at once: the packets that arrive show the addresses that were reached. */
async function tryAll(policy: Policy, probes: Probe[]): Promise<Outcome[]> {
  await network.world.untilQuiet();
  await network.world.forget();
  return await guests[policy].probe(...probes);
}

async function tryIt(policy: Policy, probe: Probe): Promise<Outcome> {
  const [outcome] = await tryAll(policy, [probe]);
  return outcome as Outcome;
}

const tls = (name: string | undefined, host: string = PUBLIC.allowed): Probe => ({
  ...{ op: "tls", host, port: 443 },
  ...(name !== undefined && { name }),
});
const http = (...lines: string[]): Probe => ({
  ...{ op: "tcp", host: PUBLIC.denied, port: 80 },
  chunks: [hex(`${lines.join("\r\n")}\r\n\r\n`)],
});
const tcp = (host: string, port: number): Probe => ({ op: "tcp", host, port, chunks: [hex("hello")] });
const udp = (host: string, port: number): Probe => ({ op: "udp", host, port, chunks: [hex("hello")] });

/** Probes that arrive in mode allow, each at its own address and port. */
const ARRIVING: Probe[] = [
  tls("example.com"),
  http("GET / HTTP/1.1", "Host: example.com"),
  ...[9000, 22].map((port) => tcp(PUBLIC.denied, port)),
  ...[25, 465, 587].map((port) => tcp(PUBLIC.mail, port)),
  udp(PUBLIC.denied, 9000),
  udp(PUBLIC.denied, 443),
  { op: "ping", host: PUBLIC.denied },
];
/** Probes that arrive in no mode: DNS over TLS and QUIC, other protocols of IP. */
const NEVER_ARRIVING: Probe[] = [
  tcp(PUBLIC.strangeResolver, 853),
  udp(PUBLIC.denied, 853),
  ...[41, 47].map((protocol) => ({ op: "ip", host: PUBLIC.denied, protocol }) as const),
];
const QUESTIONS: Probe[] = [
  { op: "dns", name: "example.com" },
  { op: "dns", name: "example.com", server: PUBLIC.strangeResolver },
  { op: "dns", name: "example.com", server: PUBLIC.strangeResolver, tcp: true },
];

describe("deny with an empty list", () => {
  test("not one packet leaves, nor a question, for any attempt of the guest", async () => {
    const outcomes = await tryAll("nothing", [
      ...QUESTIONS,
      ...["nobody.example.org", "a".repeat(63), "secret-data.attacker.example.net"].map(
        (name) => ({ op: "dns", name }) as const,
      ),
      ...ARRIVING,
      ...NEVER_ARRIVING,
      { op: "frame", chunks: [FALSE_GATEWAY, ADVERTISEMENT] },
    ]);
    expect(outcomes.slice(0, 6).map(({ rcode }) => rcode)).toEqual(Array(6).fill(5));
    expect(network.world.namespace.counted()).toEqual([]);
    expect(network.world.namespace.strangeFrames()).toBe(0);
    expect(await asked()).toEqual([]);
  });

  test("in mode allow the same packets arrive, except those that are never allowed", async () => {
    const outcomes = await tryAll("open", [...QUESTIONS, ...ARRIVING]);
    expect(outcomes.map(({ error }) => error)).toEqual(outcomes.map(() => undefined));
    expect(outcomes.slice(0, 3).map(({ a }) => a)).toEqual(Array(3).fill([PUBLIC.allowed]));
    // Port 53 of every name server is redirected to ours.
    expect(reached()).toEqual([PUBLIC.allowed, PUBLIC.denied, PUBLIC.mail].toSorted());
    const ports = network.world.namespace
      .countedPorts()
      .flatMap(({ address, protocol, port }) =>
        address === PUBLIC.resolver ? [] : [`${protocol} ${address}:${port}`],
      );
    expect(ports.toSorted()).toEqual(
      [
        `tcp ${PUBLIC.allowed}:443`,
        ...[80, 9000, 22].map((port) => `tcp ${PUBLIC.denied}:${port}`),
        ...[25, 465, 587].map((port) => `tcp ${PUBLIC.mail}:${port}`),
        ...[9000, 443].map((port) => `udp ${PUBLIC.denied}:${port}`),
      ].toSorted(),
    );
    expect(await asked()).toEqual(["example.com"]);
    await tryAll("open", NEVER_ARRIVING);
    expect(network.world.namespace.counted()).toEqual([]);
  });
});

describe("names", () => {
  test("of the policy are let through over TLS and HTTP, to the addresses that we resolve", async () => {
    const names = ["example.com", "EXAMPLE.com", "a.wild.example.com", "a.b.wild.example.com"];
    const outcomes = await tryAll("names", [
      ...names.map((name) => tls(name, PUBLIC.denied)),
      http("GET / HTTP/1.1", "Host: EXAMPLE.com"),
      http("GET http://example.com/ HTTP/1.1", "Host: example.com"),
    ]);
    expect(outcomes.slice(0, 4).map(({ got }) => got)).toEqual(
      names.map((name) => expect.stringContaining(`hello from ${name}`)),
    );
    for (const { got } of outcomes) expect(got).toContain("hello from");
    expect(reached()).toEqual([PUBLIC.allowed]);
  });

  test("outside the policy, and names of forbidden addresses, are not", async () => {
    const forbiddenNames = [
      ...["www.example.com", "example.com.example.net", "notexample.com", "wild.example.com"],
      ...["evil-wild.example.com", "port.example.com", undefined],
      ...["private.example.com", "inner.example.com"],
    ];
    const requests: [Probe, number][] = [
      [http("GET / HTTP/1.1", "Host: www.example.com"), 403],
      [http("GET / HTTP/1.1", "Host: private.example.com"), 403],
      [http("GET / HTTP/1.1"), 400],
      [http("GET / HTTP/1.1", "Host: example.com", "Host: www.example.com"), 400],
      [http("CONNECT example.com:443 HTTP/1.1", "Host: example.com:443"), 400],
    ];
    const junk: Probe = { op: "tcp", host: PUBLIC.allowed, port: 443, chunks: [hex("SSH-2.0-a\r\n")] };
    const outcomes = await tryAll("names", [
      ...requests.map(([probe]) => probe),
      ...forbiddenNames.map((name) => tls(name)),
      junk,
    ]);
    const refused = outcomes.slice(0, requests.length);
    expect(refused.map(({ got }) => Number(got?.split(" ")[1]))).toEqual(
      requests.map(([, status]) => status),
    );
    for (const { got, end } of outcomes.slice(requests.length)) {
      expect(got ?? "").toBe("");
      expect(end).not.toBe("open");
    }
    expect(reached()).toEqual([]);
  });
});

describe("packets without a name on the wire", () => {
  test("a port of a name is open once the name was asked for, on that port alone", async () => {
    expect((await tryIt("names", tcp(PUBLIC.bulk, 9000))).error).toBe("ECONNREFUSED");
    expect(reached()).toEqual([]);
    expect(await tryIt("names", { op: "dns", name: "port.example.com" })).toMatchObject({ a: [PUBLIC.bulk] });
    expect((await tryIt("names", tcp(PUBLIC.bulk, 9000))).got).toBe("hello");
    // On 80 and 443 the gateway waits for a name.
    const others = [22, 8080, 80, 443].map(
      (port): Probe => ({ ...tcp(PUBLIC.bulk, port), wait: 2 }) as Probe,
    );
    await tryAll("names", [...others, udp(PUBLIC.bulk, 9000)]);
    expect(reached()).toEqual([]);
  });

  test("a bare address is open on every port but those of QUIC and of DNS over TLS, or on its own port", async () => {
    const open = [tcp(PUBLIC.second, 22), udp(PUBLIC.second, 9000), tcp(PUBLIC.mail, 22)];
    const [named, ...others] = await tryAll("names", [tls("www.example.com", PUBLIC.second), ...open]);
    expect(named?.got).toContain("hello from www");
    expect(others.map(({ got }) => got)).toEqual(others.map(() => "hello"));
    expect(reached()).toEqual([PUBLIC.second, PUBLIC.mail]);
    await tryAll("names", [
      ...[udp(PUBLIC.second, 443), tcp(PUBLIC.second, 853), { op: "ping", host: PUBLIC.second } as const],
      ...[tcp(PUBLIC.mail, 25), tcp(PUBLIC.mail, 443), udp(PUBLIC.mail, 9000)],
    ]);
    expect(reached()).toEqual([]);
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

  test.each(["names", "open"] as const)(
    "private hosts and metadata services are nobody's: %s",
    async (policy) => {
      const hosts = Object.values(NEVER);
      await tryAll(
        policy,
        hosts.flatMap((host): Probe[] => [
          ...[80, 443, 53, 9000].map((port) => tcp(host, port)),
          ...[tls("example.com", host), udp(host, 9000), { op: "ping", host } as const],
        ]),
      );
      const others = reached().filter((address) => address !== PUBLIC.allowed);
      expect(others).toEqual([]);
    },
  );

  test("not under any spelling, nor by a redirect", async () => {
    await network.world.untilQuiet();
    await network.world.forget();
    const urls = [...SPELLINGS, "metadata.google.internal", "private.example.com"].map(
      (host) => `http://${host}/`,
    );
    const redirect = `http://example.com/redirect?to=http://${NEVER.metadata}/`;
    const script = [...urls, redirect].map((url) => `curl -s -m 5 -g -L -o /dev/null '${url}' &`).join("\n");
    await Promise.all([guests.names, guests.open].map((guest) => guest.tries(`${script}\nwait`)));
    expect(reached()).toEqual([PUBLIC.allowed]);
    const seen = (await network.world.take()).flatMap((e) => (e.kind === "request" ? [e.host] : []));
    expect(new Set(seen)).toEqual(new Set([PUBLIC.allowed]));
  });

  test("a guest for whom the rules are taken away reaches it", async () => {
    await openedTo(netnsOf(network.facts, guests.open.id), NEVER.metadata, async () => {
      expect((await tryIt("open", tcp(NEVER.metadata, 9000))).got).toBe("hello");
      expect(reached()).toEqual([NEVER.metadata]);
    });
    expect((await tryIt("open", tcp(NEVER.metadata, 9000))).error).toBe("ECONNREFUSED");
  });
});

test("the host's rules and its forwarding come back after another program took them away", async () => {
  const works = async () => (await tryIt("open", tcp(PUBLIC.denied, 9000))).got === "hello";
  const forwarding = "/proc/sys/net/ipv4/ip_forward";
  expect(await works()).toBe(true);
  const nft = (...args: string[]) => execFileSync("nft", args, { encoding: "utf8" });
  const tableHandle = () => /handle (\d+)/.exec(nft("--handle", "list", "table", "inet", "vivarium"))?.[1];
  const before = tableHandle();
  nft("delete", "table", "inet", "vivarium");
  await writeFile(forwarding, "0");
  // The node may be quicker than a try of the guest, so only the new table shows that the old one was away.
  await eventually(async () => expect(tableHandle()).not.toBe(before), 120_000);
  await eventually(async () => expect(await works()).toBe(true), 120_000);
  expect(await readFile(forwarding, "utf8")).toBe("1\n");
  // A service that stops finds here whether forwarding was on before.
  nft("list", "chain", "inet", "vivarium", "forwarding_was_off");
  expect(await readFile(join(network.facts.dataDir, "log/node.log"), "utf8")).toContain("It is put back");
});

test("without the rule against them, other protocols of IP would be seen here", async () => {
  const netns = netnsOf(network.facts, guests.open.id);
  dropRules(netns, "guard", "meta l4proto != ");
  await openedTo(netns, PUBLIC.denied, async () => {
    await tryIt("open", { op: "ip", host: PUBLIC.denied, protocol: 47 });
    await expect
      .poll(() => network.world.namespace.counted())
      .toMatchObject([{ address: PUBLIC.denied, protocol: "47" }]);
  });
});
