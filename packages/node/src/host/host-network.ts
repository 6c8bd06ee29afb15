/**
 * What is this host's own in the network: the one nft table of Vivarium, shared by all services on this host, and the
 * addresses that no guest may reach.
 */
import { readFile, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { GATEWAY_PORTS, NEVER_RANGES } from "@vivarium/contract/gateway";
import { run } from "./run.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
/**
 * An empty chain of the table, which remembers that this host forwarded nothing before the first node switched it on: it
 * outlives every process, and goes with the table. The last service to stop reads it (cli/src/supervisor/network-table.ts).
 */
const FORWARDING_WAS_OFF = "add chain inet vivarium forwarding_was_off\n";
const SLOT_NETWORK = "10.220.0.0/16";
const FALLBACK_RESOLVER = "9.9.9.9";
const ROOT_UID = 0;
/**
 * Open flows of one machine in the host's table, to the gateway and past it. More than the machine's own table lets
 * through, and counted apart: a guest can make the one believe that a flow has ended, and the other not.
 */
const FLOWS = 5_120;

/** What namespaces and gateway need to know about the host. */
export interface HostNetwork {
  resolvers: string[];
  /** Those of the system, which the gateway's own certificates are asked for with. */
  systemResolvers: string[];
  never: string[];
}

export async function readHostNetwork(wanted: string[] = [], alsoNever: string[] = []): Promise<HostNetwork> {
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter((address) => address.family === "IPv4")
    .map((address) => address.address)
    .filter((address) => !address.startsWith("127.") && !address.startsWith("10.220."));
  const found = await findResolvers();
  const resolvers = wanted.length > 0 ? wanted : found.length > 0 ? found : [FALLBACK_RESOLVER];
  return {
    resolvers,
    systemResolvers: found,
    never: [...NEVER_RANGES, ...own.map((address) => `${address}/32`), ...alsoNever],
  };
}

/** The gateway asks from this host, so a name server on loopback is as good as any. */
async function findResolvers(): Promise<string[]> {
  const text = await readFile("/etc/resolv.conf", "utf8").catch(() => "");
  const found = [...text.matchAll(/^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$/gm)];
  return found.map(([, address]) => address as string);
}

/**
 * Forwarding and NAT of the host itself; applied once per start, safe to repeat and beside other services. Says what this
 * kernel lacks, if it does.
 */
export async function prepareHostNetwork(
  host: HostNetwork,
  gatewayUid: number | undefined,
): Promise<{ lack?: string }> {
  const isOff = (await readFile(FORWARDING, "utf8")).trim() === "0";
  const lack = await applyTable(hostTable(host, gatewayUid) + (isOff ? FORWARDING_WAS_OFF : ""));
  // Only now: a start that is killed before has changed nothing, and one that is killed after remembers what it changed.
  if (isOff) await writeFile(FORWARDING, "1");
  return lack;
}

async function applyTable(table: string): Promise<{ lack?: string }> {
  const apply = (text: string) => run("nft", ["-f", "-"], { input: text });
  try {
    await apply(table);
    return {};
  } catch (error) {
    await apply(withoutTimeouts(table)).catch(() => {
      throw error;
    });
    return { lack: "flows that guests have closed stay in the host's table for two minutes" };
  }
}

/** For kernels without CONFIG_NF_CONNTRACK_TIMEOUT. */
export function withoutTimeouts(table: string): string {
  return table.replaceAll(/^.*\bct timeout\b.*\n/gm, "");
}

/**
 * Sets are added to, so that a service that starts takes nothing from another; chains are written anew. An address of
 * the gateway's is reached over one link only, that of its slot: whoever arrives there is that machine.
 */
export function hostTable(
  { never, resolvers, systemResolvers }: HostNetwork,
  gatewayUid: number | undefined,
): string {
  const { dns, http, tls } = GATEWAY_PORTS;
  const asked = [...resolvers, ...systemResolvers].map((resolver) => {
    const [address, port = "53"] = resolver.split(":");
    return `${address} . ${port}`;
  });
  const uids = gatewayUid === undefined ? [ROOT_UID] : [ROOT_UID, gatewayUid];
  return `
table inet vivarium {
  set callers { typeof meta skuid; elements = { ${uids.join(", ")} } }
  set gateways { typeof meta skuid; ${gatewayUid === undefined ? "" : `elements = { ${gatewayUid} }`} }
  set resolvers { type ipv4_addr . inet_service; elements = { ${[...new Set(asked)].join(", ")} } }
  set never4 { type ipv4_addr; flags interval; auto-merge; elements = { ${never.join(", ")} } }
  set flows { type ipv4_addr; flags dynamic; size 65535; }
  # What has ended, or sleeps for longer than two hours, leaves the table soon.
  ct timeout guests { protocol tcp; l3proto ip; policy = { established: 7440, time_wait: 10 }; }
  chain begin { }
  chain sources { type filter hook prerouting priority raw; policy accept; }
  chain input { type filter hook input priority filter - 5; policy accept; }
  chain forward { type filter hook forward priority filter - 5; policy accept; }
  chain output { type filter hook output priority filter - 5; policy accept; }
  chain postrouting { type nat hook postrouting priority srcnat; policy accept; }
}
flush chain inet vivarium sources
flush chain inet vivarium input
flush chain inet vivarium forward
flush chain inet vivarium output
flush chain inet vivarium postrouting
flush chain inet vivarium begin
table inet vivarium {
  chain sources {
    iifname "viv*" meta nfproto != ipv4 drop
    iifname "viv*" fib saddr . iif oif missing drop
  }
  chain input {
    iifname "viv*" jump begin
    iifname "viv*" ct direction reply ct state established,related accept
    iifname "viv*" meta l4proto tcp fib daddr . iif type local tcp dport { ${dns}, ${http}, ${tls} } accept
    iifname "viv*" meta l4proto udp fib daddr . iif type local udp dport ${dns} accept
    iifname "viv*" drop
  }
  chain forward {
    iifname "viv*" jump begin
    iifname "viv*" oifname "viv*" drop
    iifname "viv*" ct state invalid drop
    oifname "viv*" ct direction original drop
    iifname "viv*" ip daddr @never4 drop
  }
  chain begin {
    ct timeout set "guests"
    ct state new add @flows { ip saddr ct count over ${FLOWS} } drop
  }
  chain output {
    meta skuid @gateways ct timeout set "guests"
    oifname "viv*" ct direction original meta skuid != @callers drop
    meta skuid @gateways ct direction reply accept
    meta skuid @gateways oifname "viv*" accept
    meta skuid @gateways ip daddr . th dport @resolvers accept
    # Asked at each packet: the host may be given an address after this was written. What a guest asks for is IPv4.
    meta skuid @gateways meta nfproto ipv4 fib daddr type local reject with icmp type admin-prohibited
    meta skuid @gateways ip daddr @never4 reject with icmp type admin-prohibited
  }
  chain postrouting {
    ip saddr ${SLOT_NETWORK} oifname != "viv*" masquerade
  }
}
`;
}
