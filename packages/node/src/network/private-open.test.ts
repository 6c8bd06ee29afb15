/** The private addresses that the operator opens, in the rules of a machine and of the host. */
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import type { Opening } from "@vivarium/kit/ipv4-openings";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { GATEWAY_UID, NEVER_HERE, OUTSIDE, startTestNet, type TestNet } from "../../test-support/test-net.ts";
import { hostTable } from "../host/host-network.ts";
import { nftIn } from "../host/netns.ts";
import { run } from "../host/run.ts";
import { kernelPolicyOf } from "./kernel-policy.ts";
import { rulesetOf } from "./ruleset.ts";

const WEB = 8080;
const MIRROR = OUTSIDE.private;
const OPEN: Opening[] = [
  { range: "10.77.0.0/24", port: WEB },
  { range: `${MIRROR}/32`, port: 443 },
];
/** An address in the opened range that the host gets later. */
const LATE = "10.77.0.9";

let net: TestNet;

async function load(mode: "allow" | "deny", allow: string[] = [], open: Opening[] = OPEN): Promise<void> {
  const input = { ...net.slot, never: NEVER_HERE, open, closeSmtp: false };
  const policy = kernelPolicyOf({ generation: 1, egress: { mode, allow }, exposed: [] });
  await nftIn(net.slot.netns, ["-f", "-"], rulesetOf(input, policy, 1));
}

const loadHost = (open: Opening[] | undefined) =>
  nftIn(
    net.hostNs,
    ["-f", "-"],
    hostTable({ never: NEVER_HERE, open, resolvers: [OUTSIDE.first], systemResolvers: [] }, GATEWAY_UID),
  );

beforeAll(async () => {
  net = await startTestNet((slot) =>
    rulesetOf(
      { ...slot, never: NEVER_HERE, closeSmtp: false },
      kernelPolicyOf({ generation: 1, egress: { mode: "deny", allow: [] }, exposed: [] }),
      1,
    ),
  );
  const { outside, gateway, slot } = net;
  for (const address of [MIRROR, OUTSIDE.metadata]) {
    for (const port of [22, 80, 443, WEB]) await outside.listen(address, port);
    await outside.listenUdp(address, WEB);
  }
  for (const port of Object.values(GATEWAY_PORTS)) await gateway.listen(slot.hostAddress, port);
});
afterAll(() => net?.close());
beforeEach(async () => {
  await net.hangUp();
  await net.gateway.log();
  await net.arrived();
  await loadHost(OPEN);
});

const gatewayLog = async () => (await net.gateway.log()).map(({ kind, port }) => `${kind} ${port}`);

describe("in mode allow", () => {
  it("is reached over TCP on the opened ports, and nothing else is", async () => {
    await load("allow");
    expect(await net.guest.ask(MIRROR, WEB, "a")).toBe("a");
    expect(await net.guest.ask(MIRROR, 443, "b")).toBe("b");
    await net.hangUp();
    await net.arrived();
    const dialled = [
      ...[22, 80].map((port) => net.guest.dial(MIRROR, port)),
      ...[80, 443, WEB].map((port) => net.guest.dial(OUTSIDE.metadata, port)),
    ];
    expect(await Promise.all(dialled)).toEqual(dialled.map(() => "ECONNREFUSED"));
    expect(await net.guest.udp(MIRROR, WEB, "x")).toBe("silence");
    expect(await net.ping(MIRROR)).toBe(false);
    expect(await net.arrived()).toMatchObject({ udp: 0, icmp: 0 });
    expect(await gatewayLog()).toEqual([]);
  });
});

describe("in mode deny", () => {
  it("is not reached without an entry, and 443 goes to the gateway, which judges by name", async () => {
    await load("deny");
    expect(await net.guest.dial(MIRROR, WEB)).toBe("ECONNREFUSED");
    expect(await net.guest.dial(MIRROR, 80)).toBe("ECONNREFUSED");
    expect(await gatewayLog()).toEqual([]);
    expect(await net.guest.ask(MIRROR, 443, "greeting")).toBe("greeting");
    expect(new Set(await gatewayLog())).toEqual(new Set([`tcp ${GATEWAY_PORTS.tls}`]));
    expect(await net.arrived()).toMatchObject({ tcp: 0 });
  });

  it("is reached directly by an entry with its address, on opened ports alone", async () => {
    await load("deny", [MIRROR]);
    expect(await net.guest.ask(MIRROR, WEB, "a")).toBe("a");
    expect(await net.guest.ask(MIRROR, 443, "b")).toBe("b");
    for (const port of [22, 80]) expect(await net.guest.dial(MIRROR, port)).toBe("ECONNREFUSED");
    expect(await net.guest.udp(MIRROR, WEB, "x")).toBe("silence");
    await load("deny", [`${MIRROR}:${WEB}`, `${MIRROR}:22`]);
    expect(await net.guest.ask(MIRROR, WEB, "a")).toBe("a");
    expect(await net.guest.dial(MIRROR, 22)).toBe("ECONNREFUSED");
    expect(await gatewayLog()).toEqual([]);
  });
});

describe("an opening", () => {
  it("counts only if both the machine's table and the host's have it", async () => {
    await load("allow", [], []);
    expect(await net.guest.dial(MIRROR, WEB)).toBe("ECONNREFUSED");
    await load("allow");
    await loadHost([]);
    expect(await net.guest.ask(MIRROR, WEB, "x")).toBe("silence");
    await loadHost(OPEN);
    expect(await net.guest.ask(MIRROR, WEB, "through")).toBe("through");
  });

  it("stays when a bake writes the host's table, which does not know it", async () => {
    await load("allow");
    await loadHost(undefined);
    expect(await net.guest.ask(MIRROR, WEB, "a")).toBe("a");
  });

  it("lets the gateway's user dial the opened ports and no others", async () => {
    expect(await net.gateway.ask(MIRROR, WEB, "a")).toBe("a");
    for (const port of [22, 80]) {
      expect(await net.gateway.dial(MIRROR, port)).toEqual(expect.any(String));
      expect(await net.otherUser.ask(MIRROR, port, "control")).toBe("control");
    }
    await loadHost([]);
    expect(await net.gateway.dial(MIRROR, WEB)).toEqual(expect.any(String));
  });

  it("ends where the host gets one of its addresses later", async () => {
    const inHost = (...argv: string[]) => run("nsenter", [`--net=/run/netns/${net.hostNs}`, ...argv]);
    await inHost("ip", "addr", "add", `${LATE}/32`, "dev", "lo");
    await net.otherUser.listen(LATE, WEB);
    await load("allow");
    expect(await net.otherUser.ask(LATE, WEB, "control")).toBe("control");
    expect(await net.guest.ask(LATE, WEB, "x")).toBe("silence");
    expect(await net.gateway.dial(LATE, WEB)).toEqual(expect.any(String));
    expect(await net.guest.ask(MIRROR, WEB, "beside")).toBe("beside");
    await inHost("ip", "addr", "del", `${LATE}/32`, "dev", "lo");
  });
});
