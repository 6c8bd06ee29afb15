/**
 * A network of namespaces for tests of the nft rules: guest ── machine's namespace ── host ── outside. No namespace is
 * this host's own. The machine's namespace and both nft tables are the product's; a veth with the tap's name joins the
 * guest.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { hostTable } from "../src/host/host-network.ts";
import {
  createNamespace,
  GATEWAY_ADDRESS,
  GUEST_ADDRESS,
  nftIn,
  removeNamespace,
} from "../src/host/netns.ts";
import { run } from "../src/host/run.ts";
import type { Slot } from "../src/host/slots.ts";
import { GUEST_MAC, TAP_NAME } from "../src/qemu/arguments.ts";

/** Addresses of the namespace "outside". */
export const OUTSIDE = {
  first: "198.51.100.1",
  second: "198.51.100.2",
  private: "10.77.0.1",
  metadata: "169.254.169.254",
} as const;
/** Ranges that the guest must never reach here. The host's own address is in them. */
export const NEVER_HERE = ["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "203.0.113.1/32"];
export const GATEWAY_UID = 64_123;
const OTHER_UID = 64_124;
const QUICK_MS = 700;
/** Time without a packet after which no more are on their way. */
const SETTLED_MS = 50;

interface Received {
  kind: string;
  port: number;
  host: string;
  from: string;
  text: string;
}

/** A process in a namespace (actor.ts). */
export class Actor {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  #lastId = 0;

  constructor(netns: string, uid?: number) {
    const script = fileURLToPath(new URL("./actor.ts", import.meta.url));
    const as = uid === undefined ? [] : ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
    const argv = [`--net=/run/netns/${netns}`, ...as, process.execPath, "--no-warnings", script];
    this.#child = spawn("nsenter", argv, { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.#child.stdout as NodeJS.ReadableStream }).on("line", (line) => {
      const { id, result } = JSON.parse(line);
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  listen = (host: string, port: number) => this.#call({ op: "listen", host, port });
  listenUdp = (host: string, port: number) => this.#call({ op: "listenUdp", host, port });
  dial = (host: string, port: number, from?: string) =>
    this.#call({ op: "dial", host, port, from, ms: QUICK_MS }) as Promise<number | string>;
  say = (conn: number | string, text: string) =>
    this.#call({ op: "say", conn, text, ms: QUICK_MS }) as Promise<string>;
  udp = (host: string, port: number, text: string, from?: string) =>
    this.#call({ op: "udp", host, port, text, from, ms: QUICK_MS }) as Promise<string>;
  flood = (host: string, port: number, text: string, count: number) =>
    this.#call({ op: "flood", host, port, text, ms: count });
  /** Opens connections at once and keeps them for a while. Returns the number of each outcome. */
  dialMany = (host: string, port: number, count: number) =>
    this.#call({ op: "dialMany", host, port, conn: count, ms: QUICK_MS }) as Promise<Record<string, number>>;
  /** Opens connections, a hundred at a time, and closes each once it is open. */
  churn = (host: string, port: number, count: number) =>
    this.#call({ op: "churn", host, port, conn: count, ms: 250 }) as Promise<Record<string, number>>;
  hangUp = () => this.#call({ op: "hangUp" });
  log = () => this.#call({ op: "log" }) as Promise<Received[]>;

  /** Sends a text on a new connection. Returns the answer, or why there is none. */
  async ask(host: string, port: number, text: string): Promise<string> {
    const conn = await this.dial(host, port);
    return typeof conn === "string" ? conn : await this.say(conn, text);
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once("close", resolve));
    this.#child.stdin?.end();
    this.#child.kill("SIGKILL");
    await ended;
  }

  #call(command: object): Promise<unknown> {
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#child.stdin?.write(`${JSON.stringify({ id, ...command })}\n`);
    });
  }
}

export interface TestNet {
  slot: Slot;
  guestNs: string;
  hostNs: string;
  outsideNs: string;
  guest: Actor;
  /** A process on the host, as the gateway's user. */
  gateway: Actor;
  outside: Actor;
  /** A process on the host, as a user without a role. */
  otherUser: Actor;
  inGuest(argv: string[]): Promise<string>;
  /** Whether the guest gets an answer to an echo request. */
  ping(host: string): Promise<boolean>;
  /** Packets of the guest that arrived outside since the last call, by protocol. */
  arrived(): Promise<Record<"gre" | "icmp" | "udp" | "tcp" | "ipv6", number>>;
  /** Ends all connections, so that nothing of one test is sent again in the next. */
  hangUp(): Promise<unknown>;
  /** Removes a defence: the rules of this chain that contain this text. */
  dropRules(netns: string, table: string, chain: string, text: string): Promise<void>;
  close(): Promise<void>;
}

export async function startTestNet(ruleset: (slot: Slot) => string): Promise<TestNet> {
  const undo = new UndoStack();
  try {
    return await build(undo, ruleset);
  } catch (error) {
    await undo.unwind();
    throw error;
  }
}

async function build(undo: UndoStack, ruleset: (slot: Slot) => string): Promise<TestNet> {
  const name = `vt-${randomId(5)}`;
  const [guestNs, hostNs, outsideNs] = [`${name}-g`, `${name}-h`, `${name}-o`];
  const slot: Slot = {
    number: 900_000,
    uid: 64_125,
    netns: `${name}-m`,
    hostLink: name,
    hostAddress: "10.220.250.2",
    machineAddress: "10.220.250.3",
  };
  undo.push("namespace", () => removeNamespace(slot));
  for (const ns of [guestNs, hostNs, outsideNs]) {
    await run("ip", ["netns", "add", ns]);
    undo.push(ns, () => run("ip", ["netns", "del", ns]));
  }
  await createNamespace(slot, ruleset(slot));
  await wireHost(slot, hostNs);
  await wireGuest(slot, guestNs);
  await wireOutside(hostNs, outsideNs);
  await nftIn(
    hostNs,
    ["-f", "-"],
    hostTable(
      { never: NEVER_HERE, resolvers: [OUTSIDE.private], systemResolvers: ["127.0.0.53:5353"] },
      GATEWAY_UID,
    ),
  );
  await nftIn(outsideNs, ["-f", "-"], OUTSIDE_COUNTERS);
  const actors: Actor[] = [];
  const actor = (ns: string, uid?: number) => {
    const made = new Actor(ns, uid);
    actors.push(made);
    undo.push("actor", () => made.close());
    return made;
  };
  return {
    ...{ slot, guestNs, hostNs, outsideNs },
    guest: actor(guestNs),
    gateway: actor(hostNs, GATEWAY_UID),
    otherUser: actor(hostNs, OTHER_UID),
    outside: actor(outsideNs),
    inGuest: (argv) => run("nsenter", [`--net=/run/netns/${guestNs}`, ...argv]),
    ping: async (host) =>
      (await run("nsenter", [`--net=/run/netns/${guestNs}`, "perl", "-e", PING, host])) === "answered",
    arrived: () => readArrived(outsideNs),
    hangUp: () => Promise.all(actors.map((each) => each.hangUp())),
    dropRules,
    close: () => undo.unwind(),
  };
}

/** Moves the host's end of the link out of this host. */
async function wireHost(slot: Slot, hostNs: string): Promise<void> {
  await run("ip", ["link", "set", slot.hostLink, "netns", hostNs, "name", "viv1"]);
  await inNetns(hostNs, [
    "link set lo up",
    `addr add ${slot.hostAddress}/31 dev viv1`,
    "link set viv1 up",
    "link add viv2 type veth peer name far2",
    "addr add 10.220.250.4/31 dev viv2",
    "link set viv2 up",
    "link set far2 up",
  ]);
  await run("nsenter", [`--net=/run/netns/${hostNs}`, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]);
}

async function wireGuest(slot: Slot, guestNs: string): Promise<void> {
  const mac = "02:00:00:00:00:01";
  await inNetns(slot.netns, [
    `link del ${TAP_NAME}`,
    `link add ${TAP_NAME} address ${mac} type veth peer name eth0 netns ${guestNs}`,
    `link set ${TAP_NAME} up`,
    `addr add ${GATEWAY_ADDRESS}/30 dev ${TAP_NAME}`,
    `neigh add ${GUEST_ADDRESS} lladdr ${GUEST_MAC} dev ${TAP_NAME} nud permanent`,
  ]);
  await inNetns(guestNs, [
    "link set lo up",
    `link set eth0 address ${GUEST_MAC} up`,
    `addr add ${GUEST_ADDRESS}/30 dev eth0`,
    `neigh add ${GATEWAY_ADDRESS} lladdr ${mac} dev eth0 nud permanent`,
    `route add default via ${GATEWAY_ADDRESS}`,
  ]);
}

async function wireOutside(hostNs: string, outsideNs: string): Promise<void> {
  await inNetns(outsideNs, [
    "link set lo up",
    `link add out0 type veth peer name up0 netns ${hostNs}`,
    "addr add 203.0.113.2/24 dev out0",
    "link set out0 up",
    ...Object.values(OUTSIDE).map((address) => `addr add ${address}/32 dev lo`),
    "route add 10.220.0.0/16 via 203.0.113.1",
  ]);
  await inNetns(hostNs, [
    "addr add 203.0.113.1/24 dev up0",
    "link set up0 up",
    "route add default via 203.0.113.2",
  ]);
}

const inNetns = (netns: string, lines: string[]) =>
  run("ip", ["-netns", netns, "-batch", "-"], { input: lines.join("\n") });

/** Sends one echo request with a right checksum; prints whether an echo reply comes. */
const PING = `
use Socket;
socket(S, PF_INET, SOCK_RAW, getprotobyname("icmp") // 1) or die;
my $sum = 0x0800 + 0x1234 + 1;
send(S, pack("CCnnn", 8, 0, 0xffff & ~$sum, 0x1234, 1), 0, pack_sockaddr_in(0, inet_aton($ARGV[0]))) or exit 0;
my $set = ""; vec($set, fileno(S), 1) = 1;
while (select(my $ready = $set, undef, undef, 0.7) > 0) {
  recv(S, my $answer, 1500, 0);
  if (ord(substr($answer, 20, 1)) == 0) { print "answered"; exit 0 }
}`;

const KINDS = ["gre", "icmp", "udp", "tcp", "ipv6"] as const;
const OUTSIDE_COUNTERS = `
table inet seen {
${KINDS.map((kind) => `  counter n_${kind} { }`).join("\n")}
  chain arriving {
    type filter hook prerouting priority -500; policy accept;
    iifname "out0" meta l4proto 47 counter name n_gre
    iifname "out0" meta nfproto ipv4 meta l4proto icmp counter name n_icmp
    iifname "out0" meta nfproto ipv4 meta l4proto udp counter name n_udp
    iifname "out0" meta nfproto ipv4 meta l4proto tcp counter name n_tcp
    iifname "out0" ip6 saddr 2001:db8::/32 counter name n_ipv6
  }
}`;

type Arrived = Record<(typeof KINDS)[number], number>;

/** All that arrived until nothing more comes: on a busy host, packets are on their way for a while. */
async function readArrived(outsideNs: string): Promise<Arrived> {
  const sum = await takeArrived(outsideNs);
  for (let isOver = false; !isOver; ) {
    await sleep(SETTLED_MS);
    const more = await takeArrived(outsideNs);
    for (const kind of KINDS) sum[kind] += more[kind];
    isOver = KINDS.every((kind) => more[kind] === 0);
  }
  return sum;
}

async function takeArrived(outsideNs: string): Promise<Arrived> {
  const { nftables } = JSON.parse(
    await nftIn(outsideNs, ["-j", "reset", "counters", "table", "inet", "seen"]),
  );
  const packets = (kind: string) =>
    nftables.find((item: { counter?: { name: string } }) => item.counter?.name === `n_${kind}`)?.counter
      .packets ?? 0;
  return Object.fromEntries(KINDS.map((kind) => [kind, packets(kind)])) as Arrived;
}

async function dropRules(netns: string, table: string, chain: string, text: string): Promise<void> {
  const listing = await nftIn(netns, ["-a", "list", "chain", "inet", table, chain]);
  const handles = listing.split("\n").flatMap((line) => {
    const handle = line.includes(text) ? /# handle (\d+)$/.exec(line)?.[1] : undefined;
    return handle === undefined ? [] : [handle];
  });
  if (handles.length === 0) throw new Error(`no rule of ${chain} contains ${text}:\n${listing}`);
  for (const handle of handles) {
    await nftIn(netns, ["delete", "rule", "inet", table, chain, "handle", handle]);
  }
}
