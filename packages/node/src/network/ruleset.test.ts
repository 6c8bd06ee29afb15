import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { NEVER_HERE, OUTSIDE, startTestNet, type TestNet } from "../../test-support/test-net.ts";
import { nftIn } from "../host/netns.ts";
import { run } from "../host/run.ts";
import { kernelPolicyOf } from "./kernel-policy.ts";
import type { LearnedElement } from "./pins.ts";
import { readTable } from "./read-table.ts";
import { policyChange, type RulesetInput, rulesetOf } from "./ruleset.ts";

const WEB = 8080;
const PINNED = 9000;
/** IP, UDP and one letter. */
const QUESTION_BYTES = 29;
/** Sends as many datagrams as the argument says, each from another port. */
const SEND_FROM_MANY_PORTS = [
  "perl",
  "-e",
  `use Socket; for (1 .. $ARGV[0]) { socket(S, PF_INET, SOCK_DGRAM, 17); bind(S, pack_sockaddr_in(10000 + $_, INADDR_ANY)) or die; send(S, "x", 0, pack_sockaddr_in(9, inet_aton("${OUTSIDE.first}"))); close(S) }`,
];

let net: TestNet;
let mark = 1;

const input = (): RulesetInput => ({ ...net.slot, never: NEVER_HERE, closeSmtp: false });

function specOf(mode: "allow" | "deny", allow: string[] = [], rest: Partial<NetworkSpec> = {}): NetworkSpec {
  return { generation: 1, egress: { mode, allow }, exposed: [], ...rest };
}

/** Resets the namespace. */
async function load(spec: NetworkSpec, more: Partial<RulesetInput> = {}): Promise<void> {
  mark = 1;
  await nftIn(net.slot.netns, ["-f", "-"], rulesetOf({ ...input(), ...more }, kernelPolicyOf(spec), mark));
}

async function change(spec: NetworkSpec, learned: LearnedElement[]): Promise<void> {
  const policy = kernelPolicyOf(spec);
  mark++;
  await nftIn(
    net.slot.netns,
    ["-f", "-"],
    policyChange(input(), {
      ...{ policy, mark, generation: 1, limitBytes: policy.limitBytes },
      pins: { learned, lasting: [] },
    }),
  );
}

const withoutRule = (chain: string, text: string) => net.dropRules(net.slot.netns, "machine", chain, text);

beforeAll(async () => {
  net = await startTestNet((slot) =>
    rulesetOf({ ...slot, never: NEVER_HERE, closeSmtp: false }, kernelPolicyOf(specOf("deny")), 1),
  );
  const { outside, gateway, guest, slot } = net;
  for (const address of Object.values(OUTSIDE)) {
    for (const port of [22, 25, 53, 80, 443, 853, WEB, PINNED]) await outside.listen(address, port);
    for (const port of [53, 443, 853, WEB]) await outside.listenUdp(address, port);
  }
  for (const port of Object.values(GATEWAY_PORTS)) await gateway.listen(slot.hostAddress, port);
  await gateway.listenUdp(slot.hostAddress, GATEWAY_PORTS.dns);
  for (const port of [22, GATEWAY_PORTS.tls]) await gateway.listen("203.0.113.1", port);
  await gateway.listen("10.220.250.4", GATEWAY_PORTS.tls);
  await gateway.listen("203.0.113.1", 7000);
  for (const port of [3000, 3001]) await guest.listen("0.0.0.0", port);
});
afterAll(() => net?.close());
beforeEach(async () => {
  await net.hangUp();
  await net.outside.log();
  await net.gateway.log();
  await net.arrived();
});

const outsideLog = async () =>
  (await net.outside.log()).map(({ kind, host, port }) => `${kind} ${host}:${port}`);
const gatewayLog = async () => (await net.gateway.log()).map(({ kind, port }) => `${kind} ${port}`);

describe("mode deny", () => {
  it("lets nothing out that is not for the gateway", async () => {
    await load(specOf("deny"));
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
    const [web, quic, ping] = await Promise.all([
      net.guest.udp(OUTSIDE.first, WEB, "x"),
      net.guest.udp(OUTSIDE.first, 443, "x"),
      net.ping(OUTSIDE.first),
    ]);
    expect([web, quic, ping]).toEqual(["silence", "silence", false]);
    expect(await net.arrived()).toEqual({ gre: 0, icmp: 0, udp: 0, tcp: 0, ipv6: 0 });
    await load(specOf("allow"));
    expect(await net.guest.ask(OUTSIDE.first, WEB, "hello")).toBe("hello");
    expect(await net.guest.udp(OUTSIDE.first, WEB, "hello")).toBe("hello");
    expect(await net.guest.udp(OUTSIDE.first, 443, "hello")).toBe("hello");
    expect(await net.ping(OUTSIDE.first)).toBe(true);
  });

  it("redirects 80, 443 and every name server's 53 to the gateway", async () => {
    await load(specOf("deny"));
    expect(await net.guest.ask(OUTSIDE.first, 80, "a")).toBe("a");
    expect(await net.guest.ask(OUTSIDE.first, 443, "b")).toBe("b");
    expect(await net.guest.ask(OUTSIDE.second, 53, "c")).toBe("c");
    expect(await net.guest.udp(OUTSIDE.second, 53, "d")).toBe("d");
    expect(await net.guest.udp("10.200.0.1", 53, "e")).toBe("e");
    expect(await outsideLog()).toEqual([]);
    const { dns, http, tls } = GATEWAY_PORTS;
    expect(new Set(await gatewayLog())).toEqual(
      new Set([`tcp ${http}`, `tcp ${tls}`, `tcp ${dns}`, `udp ${dns}`]),
    );
  });

  it("lets bare addresses out directly, on every port or on the one that was named", async () => {
    await load(specOf("deny", [OUTSIDE.first, `${OUTSIDE.second}:${WEB}`]));
    expect(await net.guest.ask(OUTSIDE.first, 80, "a")).toBe("a");
    expect(await net.guest.udp(OUTSIDE.first, WEB, "b")).toBe("b");
    expect(await net.guest.ask(OUTSIDE.second, WEB, "c")).toBe("c");
    expect(await gatewayLog()).toEqual([]);
    expect(await net.guest.dial(OUTSIDE.second, 22)).toBe("ECONNREFUSED");
    const refused = [net.guest.udp(OUTSIDE.second, WEB, "x"), net.guest.udp(OUTSIDE.first, 443, "x")];
    expect(await Promise.all(refused)).toEqual(["silence", "silence"]);
    expect(new Set(await outsideLog())).toEqual(
      new Set([`tcp ${OUTSIDE.first}:80`, `udp ${OUTSIDE.first}:${WEB}`, `tcp ${OUTSIDE.second}:${WEB}`]),
    );
  });

  it("opens a pinned address on its port alone, for as long as the pin lasts", async () => {
    await load(specOf("deny", [`a.example:${PINNED}`]));
    expect(await net.guest.dial(OUTSIDE.first, PINNED)).toBe("ECONNREFUSED");
    await change(specOf("deny", [`a.example:${PINNED}`]), [
      { address: OUTSIDE.first, port: PINNED, ttlS: 2 },
    ]);
    const early = await net.guest.dial(OUTSIDE.first, PINNED);
    expect(await net.guest.say(early, "pinned")).toBe("pinned");
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
    expect(await net.guest.dial(OUTSIDE.second, PINNED)).toBe("ECONNREFUSED");
    await expect.poll(() => net.guest.dial(OUTSIDE.first, PINNED)).toBe("ECONNREFUSED");
    expect(await net.guest.say(early, "goes on")).toBe("goes on");
  });
});

describe("mode allow of a session with Connections", () => {
  const bound = specOf("allow", [], { bound_hosts: ["api.example"] });

  it("sends all TCP of port 443 to the gateway, and refuses it as UDP; every other port stays direct", async () => {
    await load(bound);
    expect(await net.guest.ask(OUTSIDE.first, 443, "a")).toBe("a");
    expect(await net.guest.udp(OUTSIDE.first, 443, "x")).toBe("silence");
    expect(await outsideLog()).toEqual([]);
    expect(new Set(await gatewayLog())).toEqual(new Set([`tcp ${GATEWAY_PORTS.tls}`]));
    expect(await net.guest.ask(OUTSIDE.first, 80, "b")).toBe("b");
    expect(await net.guest.udp(OUTSIDE.first, WEB, "c")).toBe("c");
    expect(await net.ping(OUTSIDE.first)).toBe(true);
    expect(new Set(await outsideLog())).toEqual(
      new Set([`tcp ${OUTSIDE.first}:80`, `udp ${OUTSIDE.first}:${WEB}`]),
    );
    await withoutRule("judge", "proto-dst 443");
    expect(await net.guest.udp(OUTSIDE.first, 443, "through")).toBe("through");
    await withoutRule("by_mode", "tcp dport 443");
    expect(await net.guest.ask(OUTSIDE.first, 443, "past the gateway")).toBe("past the gateway");
    expect(await outsideLog()).toContain(`tcp ${OUTSIDE.first}:443`);
  });

  it("sends to the gateway only what a guest may reach: never-ranges are refused but for what the operator opened", async () => {
    await load(bound, { open: [{ range: `${OUTSIDE.private}/32`, port: 443 }] });
    expect(await net.guest.dial(OUTSIDE.metadata, 443)).toBe("ECONNREFUSED");
    expect(await gatewayLog()).toEqual([]);
    expect(await net.guest.ask(OUTSIDE.private, 443, "a")).toBe("a");
    expect(new Set(await gatewayLog())).toEqual(new Set([`tcp ${GATEWAY_PORTS.tls}`]));
    expect(await outsideLog()).toEqual([]);
  });

  it("ends what was open on 443 before, and leaves flows of other ports", async () => {
    await load(specOf("allow"));
    const direct = await net.guest.dial(OUTSIDE.first, 443);
    const other = await net.guest.dial(OUTSIDE.first, WEB);
    expect([await net.guest.say(direct, "a"), await net.guest.say(other, "b")]).toEqual(["a", "b"]);
    await change(bound, []);
    await net.outside.log();
    expect([await net.guest.say(direct, "c"), await net.guest.say(other, "d")]).toEqual(["closed", "d"]);
    expect((await net.outside.log()).map(({ text }) => text)).toEqual(["d"]);
  });
});

describe("mode deny of a session with Connections", () => {
  it("is as without them: an allowed address is reached directly", async () => {
    await load(specOf("deny", [OUTSIDE.first], { bound_hosts: ["api.example"] }));
    expect(await net.guest.ask(OUTSIDE.first, 443, "a")).toBe("a");
    expect(await gatewayLog()).toEqual([]);
    expect(await net.guest.ask(OUTSIDE.second, 443, "b")).toBe("b");
    expect(new Set(await gatewayLog())).toEqual(new Set([`tcp ${GATEWAY_PORTS.tls}`]));
  });
});

describe("the rules, in both modes,", () => {
  it.each(["allow", "deny"] as const)("nothing reaches a never-range in mode %s", async (mode) => {
    await load(specOf(mode));
    const probes = [OUTSIDE.private, OUTSIDE.metadata].map(async (address) => {
      const [datagram, ping, ...dialled] = await Promise.all([
        net.guest.udp(address, WEB, "x"),
        net.ping(address),
        ...[80, 443, WEB].map((port) => net.guest.dial(address, port)),
      ]);
      expect([datagram, ping, ...dialled]).toEqual(["silence", false, ...Array(3).fill("ECONNREFUSED")]);
    });
    await Promise.all(probes);
    expect(await net.arrived()).toEqual({ gre: 0, icmp: 0, udp: 0, tcp: 0, ipv6: 0 });
    expect(await gatewayLog()).toEqual([]);
  });

  it("closes never-ranges by this rule, and behind it by the host's", async () => {
    await load(specOf("allow"));
    await withoutRule("judge", "@never4");
    expect(await net.guest.ask(OUTSIDE.private, WEB, "x")).toBe("silence");
    await nftIn(net.hostNs, ["delete", "element", "inet", "vivarium", "never4", "{ 10.0.0.0/8 }"]);
    expect(await net.guest.ask(OUTSIDE.private, WEB, "through")).toBe("through");
    await nftIn(net.hostNs, ["add", "element", "inet", "vivarium", "never4", "{ 10.0.0.0/8 }"]);
  });

  it("refuses DNS over TLS, also to an allowed address", async () => {
    await load(specOf("deny", [OUTSIDE.first, `${OUTSIDE.first}:853`]));
    expect(await net.guest.dial(OUTSIDE.first, 853)).toBe("ECONNREFUSED");
    expect(await net.guest.udp(OUTSIDE.first, 853, "x")).toBe("silence");
    await load(specOf("allow"));
    expect(await net.guest.dial(OUTSIDE.first, 853)).toBe("ECONNREFUSED");
    expect(await outsideLog()).toEqual([]);
    await withoutRule("judge", "proto-dst 853");
    expect(await net.guest.ask(OUTSIDE.first, 853, "through")).toBe("through");
  });

  it("allow at most 2,048 open flows", async () => {
    await load(specOf("allow"));
    // So many at once also hit the rate limit.
    await withoutRule("brakes", "limit rate over 200/second");
    await net.inGuest([...SEND_FROM_MANY_PORTS, "2200"]);
    const { udp } = await net.arrived();
    expect(udp).toBeGreaterThan(1_900);
    expect(udp).toBeLessThanOrEqual(2_048);
    await withoutRule("brakes", "ct count over 2040");
    await net.inGuest([...SEND_FROM_MANY_PORTS, "2200"]);
    expect((await net.arrived()).udp).toBe(2_200);
  });

  it("slow down new flows after a burst, also if they end at once", async () => {
    await load(specOf("allow"));
    await inHost("conntrack", "-F");
    const began = performance.now();
    const { connected = 0 } = await net.guest.churn(OUTSIDE.first, WEB, 3_000);
    const seconds = (performance.now() - began) / 1_000;
    expect(connected).toBeGreaterThanOrEqual(2_040);
    expect(connected).toBeLessThanOrEqual(2_040 + 200 * seconds);
    const entries = await flowsOnHost();
    expect(entries.length).toBeLessThanOrEqual(connected + 10);
    await withoutRule("brakes", "limit rate over 200/second");
    expect(await net.guest.churn(OUTSIDE.first, WEB, 3_000)).toEqual({ connected: 3_000 });
  });

  it("count a flow with much one-way traffic as one", async () => {
    await load(specOf("allow"));
    await net.guest.flood(OUTSIDE.first, 9, "x", 3_000);
    expect((await net.arrived()).udp).toBe(3_000);
  });

  it("remove closed flows from both tables within seconds", async () => {
    await load(specOf("allow"));
    await net.guest.churn(OUTSIDE.first, WEB, 50);
    const inMachine = await run("nsenter", [`--net=/run/netns/${net.slot.netns}`, "conntrack", "-L"]);
    for (const entries of [await flowsOnHost(), timeoutsOf(inMachine)]) {
      expect(entries.length).toBeGreaterThan(20);
      expect(Math.max(...entries)).toBeLessThanOrEqual(10);
    }
    await net.gateway.churn(OUTSIDE.second, WEB, 50);
    expect(Math.max(...(await flowsOnHost()))).toBeLessThanOrEqual(10);
    await net.dropRules(net.hostNs, "vivarium", "begin", "ct timeout set");
    await net.guest.churn(OUTSIDE.first, WEB, 50);
    expect(Math.max(...(await flowsOnHost()))).toBeGreaterThan(100);
    await inHost("conntrack", "-F");
    await net.otherUser.churn(OUTSIDE.second, WEB, 50);
    expect(Math.max(...(await flowsOnHost()))).toBeGreaterThan(100);
    await nftIn(net.hostNs, ["insert rule inet vivarium begin ct timeout set guests"]);
  });

  it("give no machine more than its share of the host's table, whatever its own table counts", async () => {
    await load(specOf("allow"));
    for (const brake of ["limit rate over 200/second", "ct count over 2040"])
      await withoutRule("brakes", brake);
    await inHost("conntrack", "-F");
    await net.inGuest([...SEND_FROM_MANY_PORTS, "5600"]);
    const { udp } = await net.arrived();
    expect(udp).toBeGreaterThan(5_000);
    expect(udp).toBeLessThanOrEqual(5_130);
    await net.dropRules(net.hostNs, "vivarium", "begin", "ct count over");
    await net.inGuest([...SEND_FROM_MANY_PORTS, "5600"]);
    expect((await net.arrived()).udp).toBe(5_600);
    await inHost("conntrack", "-F");
    await nftIn(net.hostNs, [
      "add rule inet vivarium begin ct state new add @flows { ip saddr ct count over 5120 } drop",
    ]);
  });

  const inHost = (...argv: string[]) => run("nsenter", [`--net=/run/netns/${net.hostNs}`, ...argv]);
  /** How long entries of closed TCP connections stay, in seconds. */
  const timeoutsOf = (listing: string) =>
    [...listing.matchAll(/^tcp +6 (\d+) (?:TIME_WAIT|CLOSE) src=/gm)].map(([, seconds]) => Number(seconds));
  const flowsOnHost = async () => timeoutsOf(await inHost("conntrack", "-L"));

  it("let mail out unless the operator closes it", async () => {
    await load(specOf("allow"));
    expect(await net.guest.ask(OUTSIDE.first, 25, "mail")).toBe("mail");
    await load(specOf("allow"), { closeSmtp: true });
    expect(await net.guest.dial(OUTSIDE.first, 25)).toBe("ECONNREFUSED");
    expect(await net.guest.ask(OUTSIDE.first, 22, "ssh")).toBe("ssh");
  });

  it("slow down a flood of DNS questions to the gateway", async () => {
    await load(specOf("allow"));
    await net.guest.flood("10.200.0.1", 53, "q", 2_000);
    const asked = (await readTable(net.slot.netns)).egressBytes;
    expect(asked).toBeGreaterThanOrEqual(200 * QUESTION_BYTES);
    expect(asked).toBeLessThan(1_500 * QUESTION_BYTES);
    await withoutRule("brakes", "udp dport 15053");
    await net.guest.flood("10.200.0.1", 53, "q", 2_000);
    expect((await readTable(net.slot.netns)).egressBytes).toBeGreaterThan(asked + 1_999 * QUESTION_BYTES);
  });
});

describe("connections to the gateway", () => {
  it("are 512 at most, and the next is reset", async () => {
    await load(specOf("deny"));
    const outcome = await net.guest.dialMany(OUTSIDE.first, 443, 560);
    expect(outcome).toEqual({ connected: 512, ECONNREFUSED: 48 });
    expect(await net.guest.ask(OUTSIDE.first, 443, "room again")).toBe("room again");
    await withoutRule("brakes", "ct count over 512");
    expect(await net.guest.dialMany(OUTSIDE.first, 443, 560)).toEqual({ connected: 560 });
  });

  it("for DNS questions are rate limited", async () => {
    await load(specOf("deny"));
    const { connected } = await net.guest.dialMany(OUTSIDE.first, 53, 450);
    expect(connected).toBeGreaterThanOrEqual(200);
    expect(connected).toBeLessThan(400);
    await withoutRule("brakes", "tcp dport 15053");
    expect(await net.guest.dialMany(OUTSIDE.first, 53, 450)).toEqual({ connected: 450 });
  });
});

describe("a guest that lies about itself", () => {
  const CLAIMED = "192.0.2.77";
  const SEND_IPV6 = [
    "perl",
    "-e",
    'use Socket qw(:DEFAULT inet_pton pack_sockaddr_in6); socket(S, PF_INET6, SOCK_DGRAM, 17) or die; send(S, "x", 0, pack_sockaddr_in6(99, inet_pton(AF_INET6, "2001:db8:1::1"))) or die;',
  ];

  beforeEach(async () => {
    await load(specOf("allow"));
  });

  it("sends nothing under another address", async () => {
    await net.inGuest(["ip", "addr", "replace", `${CLAIMED}/32`, "dev", "eth0"]);
    await net.guest.udp(OUTSIDE.first, WEB, "x", CLAIMED);
    expect(await net.arrived()).toMatchObject({ udp: 0 });
    expect(await net.guest.udp(OUTSIDE.first, WEB, "own")).toBe("own");
    await withoutRule("guard", "ip saddr != 10.200.0.2");
    await net.arrived();
    // Its namespace does not masquerade it, so the host drops it: it has no route back.
    await net.guest.udp(OUTSIDE.first, WEB, "x", CLAIMED);
    expect(await net.arrived()).toMatchObject({ udp: 0 });
    await net.dropRules(net.hostNs, "vivarium", "sources", "fib saddr");
    await net.guest.udp(OUTSIDE.first, WEB, "x", CLAIMED);
    expect(await net.arrived()).toMatchObject({ udp: 1 });
    await nftIn(net.hostNs, ["add rule inet vivarium sources iifname viv* fib saddr . iif oif missing drop"]);
  });

  it("sends nothing under another hardware address", async () => {
    await net.inGuest(["ip", "link", "set", "eth0", "address", "02:00:00:00:00:77"]);
    await net.guest.udp(OUTSIDE.first, WEB, "x");
    expect(await net.arrived()).toMatchObject({ udp: 0 });
    await withoutRule("guard", "ether saddr");
    await net.guest.udp(OUTSIDE.first, WEB, "x");
    expect(await net.arrived()).toMatchObject({ udp: 1 });
  });

  it("sends no fragments", async () => {
    await net.guest.udp(OUTSIDE.first, WEB, "f".repeat(3_000));
    expect(await net.arrived()).toMatchObject({ udp: 0 });
    await withoutRule("guard", "ip frag-off");
    await net.guest.udp(OUTSIDE.first, WEB, "f".repeat(3_000));
    expect((await net.arrived()).udp).toBeGreaterThan(0);
  });

  it("sends no other protocol of IP", async () => {
    const sendGre = [
      "perl",
      "-e",
      `use Socket; socket(S, PF_INET, SOCK_RAW, 47) or die; send(S, "x" x 20, 0, pack_sockaddr_in(0, inet_aton("${OUTSIDE.first}"))) or die;`,
    ];
    await net.inGuest(sendGre);
    expect(await net.arrived()).toMatchObject({ gre: 0 });
    await withoutRule("guard", "meta l4proto");
    await nftIn(net.slot.netns, ["insert rule inet machine judge meta l4proto 47 goto granted"]);
    await net.inGuest(sendGre);
    expect(await net.arrived()).toMatchObject({ gre: 1 });
  });

  it("sends no IPv6", async () => {
    await net.inGuest(["ip", "-6", "addr", "replace", "2001:db8::2/64", "dev", "eth0", "nodad"]);
    await net.inGuest(["ip", "-6", "route", "replace", "default", "via", "2001:db8::1", "dev", "eth0"]);
    await net.inGuest([
      "ip",
      "-6",
      "neigh",
      "replace",
      "2001:db8::1",
      "lladdr",
      "02:00:00:00:00:01",
      "dev",
      "eth0",
    ]);
    await net.inGuest(SEND_IPV6);
    const before = (await readTable(net.slot.netns)).droppedPackets;
    await switchIpv6("0");
    await net.inGuest(SEND_IPV6);
    expect((await readTable(net.slot.netns)).droppedPackets).toBeGreaterThan(before);
    expect(await net.arrived()).toMatchObject({ ipv6: 0 });
  });

  const switchIpv6 = (disabled: string) =>
    run("nsenter", [
      `--net=/run/netns/${net.slot.netns}`,
      ...["sh", "-c", `echo ${disabled} > /proc/sys/net/ipv6/conf/all/disable_ipv6`],
    ]);

  afterEach(async () => {
    await switchIpv6("1");
    await net.inGuest(["ip", "link", "set", "eth0", "address", "02:00:00:00:00:02"]);
    await net.inGuest(["ip", "addr", "del", `${CLAIMED}/32`, "dev", "eth0"]).catch(() => {});
    await net.inGuest(["ip", "-6", "addr", "flush", "dev", "eth0"]).catch(() => {});
  });
});

describe("the host", () => {
  it("is reached for names and by ping only", async () => {
    await load(specOf("allow"));
    expect(await net.ping("10.200.0.1")).toBe(true);
    expect(await net.guest.udp("10.200.0.1", 53, "q")).toBe("q");
    const dialled = [22, 80, 443, 15_443].map((port) =>
      Promise.all(
        ["10.200.0.1", "203.0.113.1", net.slot.hostAddress, "10.220.250.4"].map((address) =>
          net.guest.dial(address, port),
        ),
      ),
    );
    for (const outcomes of await Promise.all(dialled))
      expect(outcomes).toEqual(["silence", ...Array(3).fill("ECONNREFUSED")]);
    expect(await gatewayLog()).toEqual([`udp ${GATEWAY_PORTS.dns}`]);
  });

  it("gets nothing from a process inside the namespace, such as a QEMU that was taken over", async () => {
    await load(specOf("allow"));
    const send = () =>
      run("nsenter", [`--net=/run/netns/${net.slot.netns}`, ...SEND_FROM_MANY_PORTS, "1"]).catch(() => {});
    await send();
    expect(await net.arrived()).toMatchObject({ udp: 0 });
    await withoutRule("output", "drop");
    await send();
    expect(await net.arrived()).toMatchObject({ udp: 1 });
  });

  it("lets a namespace without rules reach nothing but its own gateway ports", async () => {
    await nftIn(net.slot.netns, ["delete", "table", "inet", "machine"]);
    await nftIn(net.slot.netns, [
      "table inet plain { chain post { type nat hook postrouting priority srcnat; oifname veth0 masquerade; }; }",
    ]);
    expect(await net.guest.ask(net.slot.hostAddress, GATEWAY_PORTS.tls, "own")).toBe("own");
    const dialled: [string, number][] = [
      [net.slot.hostAddress, 7000],
      ["203.0.113.1", 7000],
      ["203.0.113.1", GATEWAY_PORTS.tls],
      ["10.220.250.4", GATEWAY_PORTS.tls],
      [OUTSIDE.private, WEB],
      ["10.220.250.5", WEB],
    ];
    const outcomes = await Promise.all(dialled.map(([address, port]) => net.guest.dial(address, port)));
    expect(outcomes).toEqual(dialled.map(() => "silence"));
    await net.dropRules(net.hostNs, "vivarium", "input", "fib daddr . iif type local tcp");
    await nftIn(net.hostNs, ["insert rule inet vivarium input iifname viv* tcp dport 15443 accept"]);
    expect(await net.guest.ask("10.220.250.4", GATEWAY_PORTS.tls, "another's")).toBe("another's");
    await nftIn(net.slot.netns, ["delete", "table", "inet", "plain"]);
    await net.dropRules(net.hostNs, "vivarium", "input", 'viv*" tcp dport 15443');
    await nftIn(net.hostNs, [
      "insert rule inet vivarium input iifname viv* fib daddr . iif type local tcp dport { 15053, 15080, 15443 } accept",
    ]);
  });
});
