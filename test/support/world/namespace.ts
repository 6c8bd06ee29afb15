/** Makes the world's network namespace: a link to this host, many addresses, and counters of all packets to them. */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { ALL, LINK } from "./addresses.ts";

const PREFIX = "wld-";
const HOST_MAC = "02:00:00:06:00:01";
const WORLD_MAC = "02:00:00:06:00:02";

/** nftables rules that count packets before any other rule. Nothing on the link sends ARP or IPv6 by itself. */
const counters = (link: string) => `
table inet seen {
  set packets { type ipv4_addr . inet_proto; flags dynamic; size 65535; counter; }
  set ports { type ipv4_addr . inet_proto . inet_service; flags dynamic; size 65535; counter; }
  chain arriving {
    type filter hook prerouting priority -500; policy accept;
    iifname "${link}" meta nfproto ipv4 update @packets { ip daddr . meta l4proto counter }
    iifname "${link}" meta nfproto ipv4 meta l4proto { tcp, udp } update @ports { ip daddr . meta l4proto . th dport counter }
  }
}
table netdev strange {
  counter frames { }
  chain arriving {
    type filter hook ingress device "${link}" priority 0; policy accept;
    meta protocol != ip counter name frames
  }
}`;

/** Protocols by number: nft's own names are those of the host's /etc/protocols, which some hosts lack. */
const PROTOCOLS: Record<string, string> = { 1: "icmp", 6: "tcp", 17: "udp" };

export interface Counted {
  address: string;
  /** `icmp`, `tcp`, `udp`, or the number of another protocol. */
  protocol: string;
  /** Only for TCP and UDP. */
  port?: number;
  packets: number;
  /** Bytes of whole IP packets. */
  bytes: number;
}

export interface WorldNamespace {
  name: string;
  counted(): Counted[];
  /** Counters by port, of TCP and UDP. */
  countedPorts(): Counted[];
  /** Number of frames that are not IPv4. */
  strangeFrames(): number;
  reset(): void;
  remove(): Promise<void>;
}

/** Makes a namespace and links it to the network of this process, which can have only one world. */
export function createWorldNamespace(): WorldNamespace {
  removeAbandoned();
  const name = `${PREFIX}${process.pid}`;
  const link = `wldh${process.pid}`;
  const undo = new UndoStack();
  const ip = (...args: string[]) => execFileSync("ip", args, { stdio: "pipe" });
  if (ip("-o", "addr", "show", "to", LINK.host).length > 0)
    throw new Error(
      `${LINK.host} is taken: another test world is in this network. Run one of both with scripts/in-own-network`,
    );
  try {
    ip("netns", "add", name);
    undo.push("namespace", () => ip("netns", "del", name));
    ip("link", "add", link, "address", HOST_MAC, "type", "veth", "peer", "name", "wld0", "netns", name);
    undo.push("link", () => ip("link", "del", link));
    inside(name, "sh", "-ec", insideScript());
    execFileSync("sh", ["-c", `echo 1 > /proc/sys/net/ipv6/conf/${link}/disable_ipv6`]);
    ip("addr", "add", LINK.host, "peer", LINK.world, "dev", link);
    ip("link", "set", link, "up");
    ip("neigh", "add", LINK.world, "lladdr", WORLD_MAC, "dev", link, "nud", "permanent");
    for (const address of ALL) ip("route", "add", `${address}/32`, "via", LINK.world, "dev", link);
    return { ...countIn(name, "wld0"), remove: () => undo.unwind() };
  } catch (error) {
    void undo.unwind();
    throw error;
  }
}

/** Adds the world's addresses to a namespace that the test has made and linked itself. */
export function addWorldTo(name: string, link: string): WorldNamespace {
  for (const address of ALL) inside(name, "ip", "addr", "replace", `${address}/32`, "dev", "lo");
  return { ...countIn(name, link), remove: async () => {} };
}

function countIn(name: string, link: string): Omit<WorldNamespace, "remove"> {
  const nft = (input: string) =>
    execFileSync("nsenter", [`--net=/run/netns/${name}`, "nft", "-f", "-"], { input, stdio: "pipe" });
  const list = (set: string) =>
    readElements(inside(name, "nft", "-j", "--numeric-protocol", "list", "set", "inet", "seen", set));
  nft(counters(link));
  return {
    name,
    counted: () => list("packets"),
    countedPorts: () => list("ports"),
    strangeFrames: () =>
      readFrames(inside(name, "nft", "-j", "list", "counter", "netdev", "strange", "frames")),
    reset: () => {
      nft("flush set inet seen packets\nflush set inet seen ports");
      // By itself: nft 1.1.3 knows no table but this one in the commands beside it.
      nft("reset counters table netdev strange");
    },
  };
}

function inside(name: string, ...argv: string[]): string {
  return execFileSync("nsenter", [`--net=/run/netns/${name}`, ...argv], { encoding: "utf8", stdio: "pipe" });
}

const insideScript = () =>
  [
    "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true",
    "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
    "ip link set lo up",
    `ip link set wld0 address ${WORLD_MAC} up`,
    `ip addr add ${LINK.world} peer ${LINK.host} dev wld0`,
    `ip neigh add ${LINK.host} lladdr ${HOST_MAC} dev wld0 nud permanent`,
    `ip route add default via ${LINK.host}`,
    ...ALL.map((address) => `ip addr add ${address}/32 dev lo`),
  ].join("\n");

/** Removes namespaces of test runs that were killed. */
function removeAbandoned(): void {
  if (!existsSync("/run/netns")) return;
  for (const name of readdirSync("/run/netns").filter((one) => one.startsWith(PREFIX))) {
    const pid = name.slice(PREFIX.length);
    if (!existsSync(`/proc/${pid}`)) execFileSync("ip", ["netns", "del", name]);
  }
}

function readElements(json: string): Counted[] {
  const { nftables } = JSON.parse(json) as { nftables: { set?: { elem?: unknown[] } }[] };
  const elements = nftables.flatMap(({ set }) => set?.elem ?? []) as {
    elem: { val: { concat: (string | number)[] }; counter: { packets: number; bytes: number } };
  }[];
  return elements.map(({ elem: { val, counter } }) => {
    const [address, protocol, port] = val.concat;
    const place = { address: String(address), protocol: PROTOCOLS[`${protocol}`] ?? String(protocol) };
    return { ...place, ...(port !== undefined && { port: Number(port) }), ...counter };
  });
}

function readFrames(json: string): number {
  const { nftables } = JSON.parse(json) as { nftables: { counter?: { packets: number } }[] };
  return nftables.find(({ counter }) => counter)?.counter?.packets ?? 0;
}
