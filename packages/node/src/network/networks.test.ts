import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { isDeepStrictEqual } from "node:util";
import { GATEWAY_PORTS, type GatewayTables } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import type { Opening } from "@vivarium/kit/ipv4-openings";
import { createLog } from "@vivarium/kit/log";
import { fastify } from "fastify";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { NEVER_HERE, OUTSIDE, startTestNet, type TestNet } from "../../test-support/test-net.ts";
import { createNetwork } from "../app.ts";
import { watchFlows } from "../host/conntrack.ts";
import { nftIn } from "../host/netns.ts";
import { run } from "../host/run.ts";
import { registerGatewayRoutes } from "../server/gateway-routes.ts";
import { type FlowEvent, parseFlowEvent } from "./flow-events.ts";
import { kernelPolicyOf } from "./kernel-policy.ts";
import type { KeptNetwork } from "./networks.ts";
import type { NodeNetwork } from "./node-network.ts";
import type { KeptPin } from "./pins.ts";
import { readTable, type TableReading } from "./read-table.ts";
import { rulesetOf } from "./ruleset.ts";
import type { SlotNetwork } from "./slot-network.ts";

const MACHINE = "aaaaaaaaaaaaaaaaaaaaa-1";
const WEB = 8080;
const OTHER = 9000;
const TLS = 443;
/** The headers of a datagram, IP and UDP. */
const IP_UDP_BYTES = 28;

let net: TestNet;
let dir: string;
let socketPath: string;
let server: ReturnType<typeof fastify>;
let network: NodeNetwork;
let kept: KeptNetwork | undefined;
let keptPins: KeptPin[] = [];
let gateway: ScriptedGateway | undefined;
/** A process in the machine's namespace, if a test has one. */
let pid: number | undefined;
/** The private addresses that the operator opens at the next start. */
let opened: Opening[] = [];

function specOf(
  generation: number,
  mode: "allow" | "deny",
  allow: string[] = [],
  rest: Partial<NetworkSpec> = {},
): NetworkSpec {
  return { generation, egress: { mode, allow }, exposed: [], ...rest };
}

/** Takes tables, and confirms them if `confirms` is set. */
class ScriptedGateway {
  tables: GatewayTables | undefined;
  confirms = true;
  #response: IncomingMessage | undefined;

  async connect(): Promise<void> {
    const call = request({ socketPath, path: "/v1/tables", agent: false });
    call.on("error", () => {});
    call.end();
    const [response] = (await once(call, "response")) as [IncomingMessage];
    this.#response = response;
    response.on("error", () => {});
    const lines = createInterface({ input: response });
    lines.on("error", () => {});
    lines.on("line", (line) => {
      if (line === "") return;
      this.tables = JSON.parse(line) as GatewayTables;
      if (this.confirms) void post("/v1/applied", { version: this.tables.version });
    });
    await expect.poll(() => this.tables).toBeDefined();
  }

  async leave(): Promise<void> {
    this.#response?.destroy();
    await expect.poll(() => network.link.isConnected).toBe(false);
  }

  get machine() {
    return this.tables?.slots[0]?.machine;
  }
}

async function post(route: string, body: unknown): Promise<{ status: number; body: string }> {
  const call = request({
    socketPath,
    path: route,
    method: "POST",
    headers: { "content-type": "application/json" },
    agent: false,
  });
  call.end(JSON.stringify(body));
  const [response] = (await once(call, "response")) as [IncomingMessage];
  return { status: response.statusCode ?? 0, body: await text(response) };
}

async function startNetwork(): Promise<void> {
  kept = undefined;
  pid = undefined;
  network = createNetwork({
    host: { never: NEVER_HERE, open: opened, resolvers: [OUTSIDE.private], systemResolvers: [] },
    closeSmtp: false,
    expectGatewayMs: 0,
    keep: async (_id, next) => {
      kept = next;
    },
    keepPins: async (_id, pins) => {
      keptPins = pins;
    },
    pidOf: () => pid,
    log: createLog("test", "silent"),
  });
  server = fastify({ forceCloseConnections: true });
  registerGatewayRoutes(server, network);
  socketPath = path.join(dir, `${Math.random()}.sock`);
  await server.listen({ path: socketPath });
}

/** A machine in a prepared namespace, and a gateway that confirms. */
async function startMachine(spec: NetworkSpec): Promise<void> {
  await nftIn(net.slot.netns, ["-f", "-"], network.networks.preparedRuleset(net.slot, "allow"));
  network.networks.addPrepared(net.slot, "allow");
  await network.networks.assign(net.slot, MACHINE, spec);
  gateway = new ScriptedGateway();
  await gateway.connect();
}

const change = (spec: NetworkSpec) => network.networks.change(MACHINE, spec);
/** The table once its counters stop: on a busy host, packets are on their way for a while. */
async function settledTable(): Promise<TableReading> {
  let earlier = await readTable(net.slot.netns);
  for (;;) {
    await sleep(150);
    const now = await readTable(net.slot.netns);
    if (isDeepStrictEqual(now, earlier)) return now;
    earlier = now;
  }
}
const judged = () => nftIn(net.slot.netns, ["-a", "list", "chain", "inet", "machine", "judged"]);

beforeAll(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "networks-"));
  net = await startTestNet((slot) =>
    rulesetOf({ ...slot, never: NEVER_HERE, closeSmtp: false }, kernelPolicyOf(specOf(1, "deny")), 1),
  );
  for (const address of Object.values(OUTSIDE)) {
    for (const port of [WEB, OTHER]) await net.outside.listen(address, port);
    await net.outside.listenUdp(address, WEB);
    await net.outside.listenUdp(address, 53);
  }
  for (const port of [3000, 3001]) await net.guest.listen("0.0.0.0", port);
});
afterAll(async () => {
  await net?.close();
  await rm(dir, { recursive: true, force: true });
});
beforeEach(startNetwork);
afterEach(async () => {
  await net.hangUp();
  await server.close();
  gateway = undefined;
});

describe("a change of policy", () => {
  it("ends the flow that it revokes and leaves the one that it allows, no matter which side sends first", async () => {
    await startMachine(specOf(1, "deny", [OUTSIDE.first, OUTSIDE.second]));
    const revoked = await net.guest.dial(OUTSIDE.first, WEB);
    const allowed = await net.guest.dial(OUTSIDE.second, WEB);
    expect(await net.guest.say(revoked, "a")).toBe("a");
    expect(await net.guest.say(allowed, "b")).toBe("b");
    await change(specOf(2, "deny", [OUTSIDE.second]));
    await net.outside.log();
    expect(await net.guest.say(revoked, "secret")).toBe("closed");
    expect(await net.guest.say(allowed, "still")).toBe("still");
    expect((await net.outside.log()).map(({ text: said }) => said)).toEqual(["still"]);
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
  });

  it("returns once the gateway confirmed it, and the gateway has its rules", async () => {
    await startMachine(specOf(1, "allow"));
    const watched = gateway as ScriptedGateway;
    watched.confirms = false;
    const done = change(specOf(2, "deny", ["a.example"]));
    await expect.poll(() => watched.machine?.generation).toBe(2);
    expect(watched.machine).toEqual({
      machine_id: MACHINE,
      session_id: MACHINE.slice(0, -2),
      generation: 2,
      egress: { mode: "deny", allow: ["a.example"] },
    });
    expect(
      await Promise.race([done.then(() => "answered"), post("/v1/flows", NO_FLOWS).then(() => "waits")]),
    ).toBe("waits");
    await post("/v1/applied", { version: (watched.tables as GatewayTables).version });
    await done;
    expect(kept).toMatchObject({ spec: specOf(2, "deny", ["a.example"]) });
  });

  it("is refused if it is older; is kept and in the kernel if no gateway is connected", async () => {
    await startMachine(specOf(5, "allow"));
    await expect(change(specOf(4, "deny"))).rejects.toMatchObject({ code: "network_conflict" });
    await expect(change(specOf(5, "deny"))).rejects.toMatchObject({ code: "network_conflict" });
    await change(specOf(5, "allow"));
    await gateway?.leave();
    await expect(change(specOf(6, "deny"))).rejects.toMatchObject({ code: "network_unconfirmed" });
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
    const late = new ScriptedGateway();
    await late.connect();
    expect(late.machine?.generation).toBe(6);
    await change(specOf(6, "deny"));
  });
});

describe("hosts that Connections bind", () => {
  const bound = { bound_hosts: ["api.example"] };
  const direct = () => net.guest.ask(OUTSIDE.first, TLS, "x");
  beforeAll(async () => {
    await net.outside.listen(OUTSIDE.first, TLS);
  });

  it("are in the tables, and a change of them is judged like a change of policy", async () => {
    await startMachine(specOf(1, "allow"));
    const [flow, other] = [
      await net.guest.dial(OUTSIDE.first, TLS),
      await net.guest.dial(OUTSIDE.first, WEB),
    ];
    expect([await net.guest.say(flow, "a"), await net.guest.say(other, "b")]).toEqual(["a", "b"]);
    await change(specOf(2, "allow", [], bound));
    expect(gateway?.machine).toMatchObject({ generation: 2, ...bound });
    expect([await net.guest.say(flow, "c"), await net.guest.say(other, "d")]).toEqual(["closed", "d"]);
    // Nothing listens for the gateway here.
    expect(await direct()).toBe("ECONNREFUSED");
    const before = kept?.mark ?? 0;
    await change(specOf(3, "allow", [], { bound_hosts: ["api.example", "b.example"] }));
    expect(kept?.mark).toBe(before + 1);
    await change(specOf(4, "allow", [], { bound_hosts: ["api.example", "b.example"], exposed: [3000] }));
    expect(kept?.mark).toBe(before + 1);
  });

  it("are bound from the machine's first packet on, also in a namespace that was prepared without them", async () => {
    await startMachine(specOf(1, "allow", [], bound));
    expect(await direct()).toBe("ECONNREFUSED");
    expect(gateway?.machine).toMatchObject(bound);
    await server.close();
    await startNetwork();
    await network.networks.adopt(net.slot, MACHINE, specOf(1, "allow", [], bound), undefined);
    expect(await direct()).toBe("ECONNREFUSED");
    await change(specOf(2, "allow", [], { ...bound, exposed: [3000] })).catch(() => {});
    expect(await direct()).toBe("ECONNREFUSED");
    const late = new ScriptedGateway();
    await late.connect();
    expect(late.machine).toMatchObject({ generation: 2, ...bound });
  });
});

const NO_FLOWS = { entries: [], lost: 0, active_sessions: [] };

describe("a pin", () => {
  const pin = (rest: object) =>
    post("/v1/pins", {
      machine_id: MACHINE,
      generation: 1,
      host: "a.example",
      ports: [OTHER],
      addresses: [OUTSIDE.first],
      ttl_s: 30,
      ...rest,
    });

  it("opens its port before it returns, for the generation that asked", async () => {
    await startMachine(specOf(1, "deny", [`a.example:${OTHER}`]));
    expect(await net.guest.dial(OUTSIDE.first, OTHER)).toBe("ECONNREFUSED");
    expect(await pin({ generation: 2 })).toMatchObject({ status: 409 });
    expect(await net.guest.dial(OUTSIDE.first, OTHER)).toBe("ECONNREFUSED");
    expect(await pin({})).toMatchObject({ status: 204 });
    expect(await net.guest.ask(OUTSIDE.first, OTHER, "x")).toBe("x");
    expect(await pin({ machine_id: "bbbbbbbbbbbbbbbbbbbbb-1" })).toMatchObject({ status: 404 });
  });

  it("survives a change that still allows its name, with its flows; a change that does not ends it", async () => {
    await startMachine(specOf(1, "deny", [`a.example:${OTHER}`, `*.b.example:${OTHER}`]));
    await pin({ host: "a.example" });
    await pin({ host: "x.b.example", addresses: [OUTSIDE.second] });
    const staying = await net.guest.dial(OUTSIDE.second, OTHER);
    expect(await net.guest.say(staying, "a")).toBe("a");
    expect(await net.guest.ask(OUTSIDE.first, OTHER, "b")).toBe("b");
    await change(specOf(2, "deny", [`*.b.example:${OTHER}`]));
    expect(await net.guest.say(staying, "c")).toBe("c");
    expect(await net.guest.ask(OUTSIDE.second, OTHER, "d")).toBe("d");
    expect(await net.guest.dial(OUTSIDE.first, OTHER)).toBe("ECONNREFUSED");
  });

  it("belongs to its name: if two names share an address, one can end without the other", async () => {
    await startMachine(specOf(1, "deny", [`a.example:${OTHER}`, `b.example:${OTHER}`]));
    await pin({});
    await pin({ host: "b.example" });
    const flow = await net.guest.dial(OUTSIDE.first, OTHER);
    await change(specOf(2, "deny", [`a.example:${OTHER}`]));
    expect(await net.guest.say(flow, "on")).toBe("on");
    expect(await net.guest.ask(OUTSIDE.first, OTHER, "and anew")).toBe("and anew");
    await change(specOf(3, "deny"));
    expect(await net.guest.say(flow, "over")).toBe("closed");
  });

  it("that has expired keeps its flows under every policy that still allows its name, and opens no new ones", async () => {
    await startMachine(specOf(1, "deny", [`a.example:${OTHER}`, OUTSIDE.second]));
    await pin({});
    const flow = await net.guest.dial(OUTSIDE.first, OTHER);
    await change(specOf(2, "deny", [`a.example:${OTHER}`], { exposed: [3000] }));
    await nftIn(net.slot.netns, ["flush", "set", "inet", "machine", "learned"]);
    expect(await net.guest.say(flow, "on")).toBe("on");
    expect(await net.guest.dial(OUTSIDE.first, OTHER)).toBe("ECONNREFUSED");
    await change(specOf(3, "deny", [OUTSIDE.second]));
    expect(await net.guest.say(flow, "over")).toBe("closed");
  });

  it("keeps its flows under changes that still allow its name, also across a restart of the daemon", async () => {
    const spec = specOf(1, "deny", [`a.example:${OTHER}`, `b.example:${OTHER}`]);
    await startMachine(spec);
    await pin({});
    await pin({ host: "b.example", addresses: [OUTSIDE.second] });
    const staying = await net.guest.dial(OUTSIDE.first, OTHER);
    const ending = await net.guest.dial(OUTSIDE.second, OTHER);
    for (const flow of [staying, ending]) expect(await net.guest.say(flow, "a")).toBe("a");
    await server.close();
    await startNetwork();
    await network.networks.adopt(net.slot, MACHINE, spec, undefined, keptPins);
    gateway = new ScriptedGateway();
    await gateway.connect();
    await change(specOf(2, "deny", [`a.example:${OTHER}`]));
    expect(await net.guest.say(staying, "b")).toBe("b");
    expect(await net.guest.ask(OUTSIDE.first, OTHER, "and anew")).toBe("and anew");
    expect(await net.guest.say(ending, "b")).toBe("closed");
  });

  it("ended by a change stays ended: a later change that allows its name opens nothing through it", async () => {
    const spec = specOf(1, "deny", [`a.example:${OTHER}`, `b.example:${OTHER}`]);
    await startMachine(spec);
    await pin({});
    await pin({ host: "b.example", addresses: [OUTSIDE.second] });
    await change(specOf(2, "deny", [`a.example:${OTHER}`]));
    expect(keptPins.map(({ host }) => host)).toEqual(["a.example"]);
    await change(specOf(3, "deny", []));
    expect(keptPins).toEqual([]);
  });

  it("is loaded into the kernel with all that wait, and too many at once are refused", async () => {
    await startMachine(specOf(1, "deny", [`*.example:${OTHER}`]));
    const pins = Array.from({ length: 80 }, (_, index) => ({
      ...{ machine_id: MACHINE, generation: 1, host: `n${index}.example`, ports: [OTHER] },
      ...{ addresses: [`198.51.100.${10 + index}`], ttl_s: 30 },
    }));
    const outcomes = await Promise.allSettled(pins.map((one) => network.networks.pin(one)));
    expect(outcomes.map(({ status }) => status)).toEqual([
      ...Array(32).fill("fulfilled"),
      ...Array(48).fill("rejected"),
    ]);
    const learned = await nftIn(net.slot.netns, ["list", "set", "inet", "machine", "learned"]);
    expect(learned.match(/expires/g)).toHaveLength(32);
    expect(await pin({ host: "late.example" })).toMatchObject({ status: 204 });
  });

  it("is refused once the kernel's set is full", async () => {
    await startMachine(specOf(1, "deny", [`a.example:${OTHER}`]));
    const ports = Array.from({ length: 256 }, (_, index) => 1000 + index);
    for (let block = 0; block < 4; block++) {
      const addresses = [0, 1, 2, 3].map((index) => `198.51.100.${10 + 4 * block + index}`);
      expect(await pin({ ports, addresses })).toMatchObject({ status: 204 });
    }
    expect(await pin({})).toMatchObject({ status: 503 });
  });
});

describe("a change of a spec under the same policy", () => {
  it("leaves every flow and pin as it is, and is in force", async () => {
    const allow = [`a.example:${OTHER}`];
    await startMachine(specOf(1, "deny", allow));
    await post("/v1/pins", {
      ...{ machine_id: MACHINE, generation: 1, host: "a.example", ports: [OTHER] },
      ...{ addresses: [OUTSIDE.first], ttl_s: 30 },
    });
    const flow = await net.guest.dial(OUTSIDE.first, OTHER);
    const markInForce = async () => /ct mark \S+/.exec(await judged())?.[0];
    const before = await markInForce();
    await change(specOf(2, "deny", allow, { exposed: [3000] }));
    await change(specOf(3, "deny", allow, { exposed: [3000], egress_limit_bytes: 100_000 }));
    expect(before).toMatch(/^ct mark/);
    expect(await markInForce()).toBe(before);
    expect(await net.guest.say(flow, "on")).toBe("on");
    expect(await net.guest.ask(OUTSIDE.first, OTHER, "anew")).toBe("anew");
    expect(await net.gateway.ask(net.slot.machineAddress, 3000, "exposed")).toBe("exposed");
  });

  it("that a crash kept from the kernel is applied later, and flows continue", async () => {
    const allow = [`a.example:${OTHER}`];
    await startMachine(specOf(1, "deny", allow));
    await post("/v1/pins", {
      ...{ machine_id: MACHINE, generation: 1, host: "a.example", ports: [OTHER] },
      ...{ addresses: [OUTSIDE.first], ttl_s: 30 },
    });
    const flow = await net.guest.dial(OUTSIDE.first, OTHER);
    const { mark } = network.networks.get(net.slot) as SlotNetwork;
    await server.close();
    await startNetwork();
    const later = { spec: specOf(2, "deny", allow, { exposed: [3000] }), mark };
    await network.networks.adopt(net.slot, MACHINE, specOf(1, "deny", allow), later);
    expect(await net.gateway.ask(net.slot.machineAddress, 3000, "exposed")).toBe("exposed");
    expect(await net.guest.say(flow, "on")).toBe("on");
  });
});

describe("a cap", () => {
  const LIMIT = 20_000;
  const PACKET = 1_028;

  it("lets bytes out up to the limit, to the packet, and lets out more when the limit is raised", async () => {
    await startMachine(specOf(1, "allow", [], { egress_limit_bytes: LIMIT }));
    await net.guest.flood(OUTSIDE.first, WEB, "x".repeat(1_000), 40);
    const cut = await settledTable();
    expect(cut.egressBytes).toBeLessThanOrEqual(LIMIT);
    expect(cut.egressBytes).toBeGreaterThan(LIMIT - PACKET);
    expect(cut.isCapped).toBe(true);
    expect(await net.guest.udp(OUTSIDE.first, 53, "names are egress too")).toBe("silence");
    await change(specOf(2, "allow", [], { egress_limit_bytes: 2 * LIMIT }));
    await net.outside.log();
    await net.guest.flood(OUTSIDE.first, WEB, "x".repeat(1_000), 40);
    const again = await settledTable();
    expect(again.egressBytes).toBeLessThanOrEqual(2 * LIMIT);
    expect(again.egressBytes).toBeGreaterThan(2 * LIMIT - PACKET);
    const arrived = (await net.outside.log()).length;
    expect(arrived).toBe(Math.floor((again.egressBytes - cut.egressBytes) / PACKET));
    await change(specOf(3, "allow", [], { egress_limit_bytes: 10 }));
    expect(await net.guest.udp(OUTSIDE.first, WEB, "x")).toBe("silence");
    await change(specOf(4, "allow"));
    expect(await net.guest.udp(OUTSIDE.first, WEB, "free")).toBe("free");
    const { counters } = await network.reporter.report(undefined);
    expect(counters).toMatchObject([{ machine_id: MACHINE, is_capped: false }]);
    expect(counters[0]?.egress_bytes).toBeGreaterThan(again.egressBytes);
  });
});

describe("a machine whose cap is reached", () => {
  const LIMIT = 20_000;
  const PACKET = 1_028;
  const flood = () => net.guest.flood(OUTSIDE.first, WEB, "x".repeat(1_000), 60);

  it("takes every later change, and a higher limit to the packet", async () => {
    await startMachine(specOf(1, "allow"));
    await flood();
    const { egressBytes: before } = await settledTable();
    expect(before).toBeGreaterThan(LIMIT);
    // Below the bytes sent; then changes of everything but the limit.
    await change(specOf(2, "allow", [], { egress_limit_bytes: LIMIT }));
    await flood();
    await change(specOf(3, "deny", [], { egress_limit_bytes: LIMIT }));
    await flood();
    await change(specOf(4, "allow", [], { egress_limit_bytes: LIMIT, exposed: [3000] }));
    await flood();
    expect((await settledTable()).egressBytes).toBe(before);
    await change(specOf(5, "allow", [], { egress_limit_bytes: before + LIMIT }));
    await flood();
    const { egressBytes: after } = await settledTable();
    expect(after).toBeLessThanOrEqual(before + LIMIT);
    expect(after).toBeGreaterThan(before + LIMIT - PACKET);
  });
});

describe("an exposed port", () => {
  it("is reached by the gateway alone, and the guest sees its own gateway", async () => {
    await startMachine(specOf(1, "deny", [], { exposed: [3000] }));
    await net.guest.log();
    const before = await readTable(net.slot.netns);
    const open = await net.gateway.dial(net.slot.machineAddress, 3000);
    expect(await net.gateway.say(open, "hello")).toBe("hello");
    expect(new Set((await net.guest.log()).map(({ from }) => from))).toEqual(new Set(["10.200.0.1"]));
    expect(await net.gateway.dial(net.slot.machineAddress, 3001)).toBe("silence");
    expect(await net.otherUser.dial(net.slot.machineAddress, 3000)).toBe("silence");
    expect(await net.outside.dial(net.slot.machineAddress, 3000)).toBe("silence");
    const after = await readTable(net.slot.netns);
    expect([after.egressBytes, after.ingressBytes]).toEqual([before.egressBytes, before.ingressBytes]);
    await change(specOf(2, "deny", [], { exposed: [3001] }));
    expect(await net.gateway.say(open, "more")).toBe("silence");
    expect(await net.gateway.ask(net.slot.machineAddress, 3001, "other")).toBe("other");
    await net.dropRules(net.hostNs, "vivarium", "output", "skuid != @callers");
    expect(await net.otherUser.ask(net.slot.machineAddress, 3001, "defence off")).toBe("defence off");
    await nftIn(net.hostNs, [
      "insert rule inet vivarium output oifname viv* ct direction original meta skuid != @callers drop",
    ]);
  });
});

describe("the gateway's user", () => {
  it("reaches no address in a never-range but name servers and machines", async () => {
    expect(await net.gateway.ask(OUTSIDE.first, WEB, "public")).toBe("public");
    expect(await net.gateway.dial(OUTSIDE.private, WEB)).not.toBeTypeOf("number");
    expect(await net.gateway.dial(OUTSIDE.metadata, WEB)).not.toBeTypeOf("number");
    expect(await net.gateway.udp(OUTSIDE.private, 53, "name?")).toBe("name?");
    await net.otherUser.listen("127.0.0.53", 5353);
    expect(await net.gateway.ask("127.0.0.53", 5353, "the system's own")).toBe("the system's own");
    expect(await net.otherUser.ask(OUTSIDE.private, WEB, "others may")).toBe("others may");
    await net.otherUser.listen("127.0.0.1", 5432);
    expect(await net.otherUser.ask("127.0.0.1", 5432, "others may")).toBe("others may");
    expect(await net.gateway.dial("127.0.0.1", 5432)).not.toBeTypeOf("number");
  });

  it("reaches no address of the host, also one added later", async () => {
    const LATER = "198.51.100.77";
    await run("ip", ["-netns", net.hostNs, "addr", "add", `${LATER}/32`, "dev", "lo"]);
    await net.otherUser.listen(LATER, 5432);
    expect(await net.otherUser.ask(LATER, 5432, "others may")).toBe("others may");
    expect(await net.gateway.dial(LATER, 5432)).not.toBeTypeOf("number");
    await net.dropRules(net.hostNs, "vivarium", "output", "fib daddr type local");
    expect(await net.gateway.ask(LATER, 5432, "defence off")).toBe("defence off");
  });
});

describe("a slot", () => {
  it("is in the tables before it has a machine, and is free again once the gateway forgot it", async () => {
    network.networks.addPrepared(net.slot, "deny");
    gateway = new ScriptedGateway();
    await gateway.connect();
    const { hostAddress: host_address, machineAddress: machine_address } = net.slot;
    expect(gateway.tables?.slots).toEqual([{ host_address, machine_address }]);
    await network.networks.assign(net.slot, MACHINE, specOf(1, "allow"));
    gateway.confirms = false;
    let isFree = false;
    const freed = network.networks.release(net.slot).then(() => {
      isFree = true;
    });
    await expect.poll(() => gateway?.tables?.slots).toEqual([]);
    await gateway.leave();
    expect(isFree).toBe(false);
    await new ScriptedGateway().connect();
    await freed;
  });

  it("is free at once without a gateway, or without a machine", async () => {
    network.networks.addPrepared(net.slot, "deny");
    await network.networks.assign(net.slot, MACHINE, specOf(1, "deny"));
    await network.networks.release(net.slot);
    network.networks.addPrepared(net.slot, "deny");
    gateway = new ScriptedGateway();
    gateway.confirms = false;
    await gateway.connect();
    await network.networks.release(net.slot);
  });

  it("routes its machine's names to the address of this slot", async () => {
    await startMachine(specOf(1, "deny"));
    await net.gateway.listenUdp(net.slot.hostAddress, GATEWAY_PORTS.dns);
    expect(await net.guest.udp("8.8.8.8", 53, "name?")).toBe("name?");
  });
});

describe("a machine that outlived the daemon", () => {
  it("keeps rules that are right, untouched", async () => {
    await startMachine(specOf(1, "deny", [OUTSIDE.first]));
    await change(specOf(2, "deny", [OUTSIDE.second]));
    const before = await judged();
    const flow = await net.guest.dial(OUTSIDE.second, WEB);
    await server.close();
    const later = kept;
    await startNetwork();
    await network.networks.adopt(net.slot, MACHINE, specOf(1, "deny", [OUTSIDE.first]), later);
    expect(await judged()).toBe(before);
    expect(await net.guest.say(flow, "on")).toBe("on");
    const late = new ScriptedGateway();
    await late.connect();
    expect(late.machine?.generation).toBe(2);
  });

  it("loses what the operator no longer opens, with its flows, and gets what is new; other flows live on", async () => {
    const atPrivate = (port: number) => ({ range: `${OUTSIDE.private}/32`, port });
    const onHost = (verb: string) =>
      nftIn(net.hostNs, [
        `${verb} element inet vivarium open4 { ${OUTSIDE.private} . ${WEB}, ${OUTSIDE.private} . ${OTHER} }`,
      ]);
    await onHost("add");
    opened = [atPrivate(WEB)];
    await server.close();
    await startNetwork();
    await startMachine(specOf(1, "allow"));
    const [inner, outer] = [
      await net.guest.dial(OUTSIDE.private, WEB),
      await net.guest.dial(OUTSIDE.first, WEB),
    ];
    expect([await net.guest.say(inner, "a"), await net.guest.say(outer, "b")]).toEqual(["a", "b"]);
    opened = [atPrivate(OTHER)];
    for (let start = 0; start < 2; start++) {
      await server.close();
      const before = kept;
      await startNetwork();
      await network.networks.adopt(net.slot, MACHINE, specOf(1, "allow"), before);
      expect(await net.guest.say(inner, "c")).toBe("closed");
      expect(await net.guest.say(outer, "d")).toBe("d");
      expect(await net.guest.dial(OUTSIDE.private, WEB)).toBe("ECONNREFUSED");
      expect(await net.guest.ask(OUTSIDE.private, OTHER, "e")).toBe("e");
      // The second start finds what it wants.
      if (start === 1) expect(kept).toBe(undefined);
      kept ??= before;
    }
    opened = [];
    await onHost("delete");
  });

  it("gets the change that a crash kept from the kernel, and keeps its counters", async () => {
    await startMachine(specOf(1, "allow"));
    expect(await net.guest.udp(OUTSIDE.first, WEB, "x")).toBe("x");
    const before = await readTable(net.slot.netns);
    await server.close();
    await startNetwork();
    await network.networks.adopt(net.slot, MACHINE, specOf(1, "allow"), { spec: specOf(2, "deny"), mark: 3 });
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
    expect((await readTable(net.slot.netns)).egressBytes).toBe(before.egressBytes);
    expect(before.egressBytes).toBeGreaterThan(0);
  });

  it("with rules of another make gets the rules of this one", async () => {
    await nftIn(
      net.slot.netns,
      ["-f", "-"],
      "table inet machine { }\ndelete table inet machine\ntable inet machine { }",
    );
    await network.networks.adopt(net.slot, MACHINE, specOf(1, "deny"), undefined);
    expect(await net.guest.dial(OUTSIDE.first, WEB)).toBe("ECONNREFUSED");
  });
});

describe("the host's table of connections", () => {
  it("reports the flows that a machine sent out by NAT, with their bytes, under the address of its slot", async () => {
    await startMachine(specOf(1, "allow"));
    const enter = ["nsenter", `--net=/run/netns/${net.hostNs}`];
    await run("nsenter", [
      ...enter.slice(1),
      "sh",
      "-c",
      "echo 1 > /proc/sys/net/netfilter/nf_conntrack_acct",
    ]);
    const stop = new AbortController();
    const flows: FlowEvent[] = [];
    const onLine = (line: string) => {
      const flow = parseFlowEvent(line);
      if (flow) flows.push(flow);
    };
    const watching = watchFlows({ onLine, onLost: () => {} }, stop.signal, enter);
    // Until it watches, flows go unseen.
    await expect
      .poll(async () => {
        await net.guest.udp(OUTSIDE.second, WEB, "hello");
        return flows.length;
      })
      .toBeGreaterThan(0);
    await net.guest.udp(OUTSIDE.first, WEB, "12345");
    const { machineAddress } = net.slot;
    // It fails if an entry that it has listed is gone before it deletes it.
    const endFlows = () =>
      run("nsenter", [...enter.slice(1), "conntrack", "-D", "--orig-src", machineAddress]).catch(() => {});
    const where = { protocol: "udp", source: machineAddress, address: OUTSIDE.first, port: WEB };
    await expect
      .poll(async () => {
        await endFlows();
        return flows;
      })
      .toContainEqual(expect.objectContaining({ ...where, event: "destroy", bytesOut: 33, bytesIn: 33 }));
    stop.abort();
    await watching;
  });
});

describe("the report", () => {
  it("has the counters of machines and the flows that their kernels refused, once", async () => {
    await startMachine(specOf(1, "deny"));
    await net.guest.dial(OUTSIDE.first, WEB);
    await net.guest.dial(OUTSIDE.metadata, WEB);
    const { entries, cursor, counters } = await network.reporter.report(undefined);
    const line = { machine_id: MACHINE, kind: "tcp", port: WEB, verdict: "denied", count: 1 };
    expect(entries).toHaveLength(2);
    expect(entries).toContainEqual(
      expect.objectContaining({ ...line, address: OUTSIDE.first, reason: "port_not_allowed" }),
    );
    expect(entries).toContainEqual(
      expect.objectContaining({ ...line, address: OUTSIDE.metadata, reason: "never_address" }),
    );
    expect(counters).toMatchObject([{ machine_id: MACHINE, egress_bytes: 0, dropped_packets: 2 }]);
    await network.reporter.readLast(net.slot);
    expect((await network.reporter.report(cursor)).entries).toEqual([]);
  });

  it("has the last bytes of a machine that ended while the daemon was down, however late it is requested", async () => {
    await startMachine(specOf(1, "allow"));
    expect(await net.guest.udp(OUTSIDE.first, WEB, "late")).toBe("late");
    const { egressBytes } = await settledTable();
    await server.close();
    await startNetwork();
    await network.reporter.readLast(net.slot, MACHINE);
    vi.useFakeTimers({ toFake: ["performance"] });
    try {
      vi.advanceTimersByTime(3_600_000);
      const { counters } = await network.reporter.report(undefined);
      expect(counters).toMatchObject([{ machine_id: MACHINE, egress_bytes: egressBytes }]);
      expect(egressBytes).toBeGreaterThan(0);
      vi.advanceTimersByTime(61_000);
      expect((await network.reporter.report(undefined)).counters).toEqual([]);
    } finally {
      vi.useRealTimers();
    }
  });

  it("has later refused flows after a guest was refused at countless addresses", async () => {
    await startMachine(specOf(1, "deny"));
    const many = `use Socket; socket(S, PF_INET, SOCK_DGRAM, 17); for (1 .. 600) { send(S, "x", 0, pack_sockaddr_in(20000 + $_, inet_aton("${OUTSIDE.first}"))) }`;
    await net.inGuest(["perl", "-e", many]);
    const { entries, cursor } = await network.reporter.report(undefined);
    expect(entries.length).toBeGreaterThan(500);
    // A reading is reported again for two seconds.
    await sleep(2_100);
    await net.guest.dial(OUTSIDE.metadata, WEB);
    const later = await network.reporter.report(cursor);
    expect(later.entries).toEqual([
      expect.objectContaining({ address: OUTSIDE.metadata, port: WEB, reason: "never_address", count: 1 }),
    ]);
  });

  it("names the flows that a cap cut as the guest meant them", async () => {
    await startMachine(specOf(1, "deny", [OUTSIDE.first], { egress_limit_bytes: 10 }));
    await net.guest.udp(OUTSIDE.first, WEB, "a");
    await net.guest.udp(OUTSIDE.second, 53, "b");
    for (const port of [80, 443]) await net.guest.dial(OUTSIDE.second, port);
    const { entries } = await network.reporter.report(undefined);
    const to = entries.map(({ kind, address, port, verdict, reason }) =>
      [kind, address, port, verdict, reason].join(" "),
    );
    expect(to.sort()).toEqual([
      "dns  53 denied capped",
      "http  80 denied capped",
      "tls  443 denied capped",
      `udp ${OUTSIDE.first} ${WEB} denied capped`,
    ]);
    await change(specOf(2, "deny", [OUTSIDE.first]));
    expect(await net.guest.udp(OUTSIDE.first, WEB, "free")).toBe("free");
  });

  describe("of an idle machine", () => {
    /** A reading is reported again for two seconds. */
    const FRESH_MS = 2_100;
    let inside: ChildProcess;

    beforeEach(async () => {
      inside = spawn("nsenter", [`--net=/run/netns/${net.slot.netns}`, "sleep", "600"]);
      await expect.poll(() => readFile(`/proc/${inside.pid}/comm`, "utf8")).toBe("sleep\n");
      pid = inside.pid;
      await silence(net.slot.netns, "veth0");
      await silence(net.hostNs, "viv1");
      await silence(net.guestNs, "eth0");
    });
    afterEach(() => inside.kill("SIGKILL"));

    /** Stops neighbour probes and router solicitations, which this end of a link sends on its own. */
    const silence = (netns: string, link: string) =>
      run("nsenter", [
        `--net=/run/netns/${netns}`,
        "sh",
        "-ec",
        `echo 600 > /proc/sys/net/ipv4/neigh/${link}/delay_first_probe_time
         echo 0 > /proc/sys/net/ipv6/conf/${link}/router_solicitations`,
      ]);

    async function countersNow() {
      await sleep(FRESH_MS);
      return (await network.reporter.report(undefined)).counters;
    }

    /** Resets the table's counters, which shows only in a new reading of the table. */
    const emptyTable = () => nftIn(net.slot.netns, ["reset", "counters", "table", "inet", "machine"]);

    async function reportUntilIdle() {
      await settledTable();
      await countersNow();
      return await countersNow();
    }

    it("is taken from the last reading, until a packet passes", async () => {
      await startMachine(specOf(1, "allow"));
      expect(await net.guest.udp(OUTSIDE.first, WEB, "some")).toBe("some");
      const before = await reportUntilIdle();
      expect(before[0]?.egress_bytes).toBeGreaterThan(0);
      await emptyTable();
      expect(await countersNow()).toEqual(before);
      expect(await net.guest.udp(OUTSIDE.first, WEB, "1")).toBe("1");
      const [moved] = await countersNow();
      expect(moved?.egress_bytes).toBe(IP_UDP_BYTES + 1);
    });

    it("is read anew after a change of its network, and when the machine ends", async () => {
      await startMachine(specOf(1, "allow"));
      expect(await net.guest.udp(OUTSIDE.first, WEB, "some")).toBe("some");
      await reportUntilIdle();
      await emptyTable();
      await change(specOf(2, "allow", [], { egress_limit_bytes: 1_000_000 }));
      expect(await countersNow()).toMatchObject([{ egress_bytes: 0, limit_bytes: 1_000_000 }]);
      await net.guest.udp(OUTSIDE.first, WEB, "some");
      await reportUntilIdle();
      await emptyTable();
      await network.reporter.readLast(net.slot);
      await network.networks.release(net.slot);
      expect(await countersNow()).toMatchObject([{ machine_id: MACHINE, egress_bytes: 0 }]);
    });

    it("is read while a refused flow is in the table, so that a later flow of the same kind is counted from zero", async () => {
      await startMachine(specOf(1, "deny"));
      await net.guest.dial(OUTSIDE.first, WEB);
      await reportUntilIdle();
      await emptyTable();
      expect(await countersNow()).toMatchObject([{ dropped_packets: 0 }]);
    });

    it("is read if the process is in another namespace", async () => {
      pid = process.pid;
      await startMachine(specOf(1, "allow"));
      expect(await net.guest.udp(OUTSIDE.first, WEB, "some")).toBe("some");
      await reportUntilIdle();
      await emptyTable();
      expect(await countersNow()).toMatchObject([{ egress_bytes: 0 }]);
    });
  });
});
