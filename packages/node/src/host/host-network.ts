/**
 * Writes the host's nft table, switches forwarding on, and finds name servers and the addresses that no guest may
 * reach. All Vivarium services on this host share the table.
 */
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { GATEWAY_PORTS, NEVER_RANGES } from "@vivarium/contract/gateway";
import {
  changesIn,
  fileOfHostSetting,
  type HostSettingChange,
  recordOfChange,
} from "@vivarium/contract/node";
import { ipv4AddressesOfHost } from "@vivarium/kit/host-addresses";
import { type Opening, withoutOwn } from "@vivarium/kit/ipv4-openings";
import { run } from "./run.ts";

const FORWARDING = fileOfHostSetting("forwarding");
const SWITCHED_ON: HostSettingChange = { setting: "forwarding", was: "0", now: "1" };
const CHAINS = ["sources", "input", "forward", "output", "postrouting", "begin"];
const SLOT_NETWORK = "10.220.0.0/16";
const FALLBACK_RESOLVER = "9.9.9.9";
const ROOT_UID = 0;
/**
 * Open flows of one machine in the host's table, to the gateway and past it. Larger than the limit in the machine's
 * own table, and counted separately: a guest can make one table believe that a flow has ended, and the other not.
 */
const FLOWS = 5_120;

/** Facts about the host's network that namespaces and gateway need. */
export interface HostNetwork {
  resolvers: string[];
  /** Name servers of the system. The gateway uses them for its own certificates. */
  systemResolvers: string[];
  never: string[];
  /** The parts of the never-ranges that the operator opens, without the host's own addresses. Absent: not known here. */
  open?: Opening[];
}

/** The operator's settings of guests' network. */
interface NetworkSettings {
  resolvers?: string[];
  neverRanges?: string[];
  privateOpen?: Opening[];
}

export async function readHostNetwork(settings: NetworkSettings = {}): Promise<HostNetwork> {
  const { resolvers: wanted = [], neverRanges = [], privateOpen } = settings;
  const own = ipv4AddressesOfHost().filter((address) => !/^(127|10\.220)\./.test(address));
  const found = await findResolvers();
  const resolvers = wanted.length > 0 ? wanted : found.length > 0 ? found : [FALLBACK_RESOLVER];
  return {
    resolvers,
    systemResolvers: found,
    never: [...NEVER_RANGES, ...own.map((address) => `${address}/32`), ...neverRanges],
    open: privateOpen && withoutOwn("VIV_PRIVATE_OPEN", privateOpen, own),
  };
}

/** The host's name servers. One on loopback works too, because the gateway runs on this host. */
async function findResolvers(): Promise<string[]> {
  const text = await readFile("/etc/resolv.conf", "utf8").catch(() => "");
  const found = [...text.matchAll(/^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)\s*$/gm)];
  return found.map(([, address]) => address as string);
}

/**
 * Sets up forwarding and NAT of the host. Safe to repeat, and while other services run. `changes`: settings that nodes
 * changed before, and whose records may be gone with the table. Returns what this kernel lacks, if anything.
 */
export async function prepareHostNetwork(
  host: HostNetwork,
  gatewayUid: number | undefined,
  { changes = [] }: { changes?: readonly HostSettingChange[] } = {},
): Promise<{ lack?: string }> {
  const isOff = !(await isForwarding());
  const records = [...changes, ...(isOff ? [SWITCHED_ON] : [])].map(recordOfChange);
  const notes = [noteOf(host, gatewayUid), ...records].map((name) => `add chain inet vivarium ${name}\n`);
  const lack = await applyTable(hostTable(host, gatewayUid) + notes.join(""));
  // After the table, which records the change: a start that is killed in between has not switched forwarding on.
  if (isOff) await writeFile(FORWARDING, "1");
  return lack;
}

/** Name of an empty chain that says that the table has what a service with these facts adds to it. */
export function noteOf(host: HostNetwork, gatewayUid: number | undefined): string {
  const digest = createHash("sha256").update(hostTable(host, gatewayUid)).digest("hex");
  return `has_${digest.slice(0, 16)}`;
}

export async function isForwarding(): Promise<boolean> {
  return (await readFile(FORWARDING, "utf8")).trim() !== "0";
}

/**
 * Changes a setting of the host, and records the change first: the last service to stop puts the setting back. Nothing is
 * written if it has the value.
 */
export async function changeHostSetting(setting: HostSettingChange["setting"], value: string): Promise<void> {
  const file = fileOfHostSetting(setting);
  const was = (await readFile(file, "utf8")).trim();
  if (was === value) return;
  const record = recordOfChange({ setting, was, now: value });
  await run("nft", ["-f", "-"], { input: `add table inet vivarium\nadd chain inet vivarium ${record}\n` });
  await writeFile(file, value);
}

/** The settings of this host that nodes have changed. */
export async function readHostChanges(): Promise<HostSettingChange[]> {
  const list = run("nft", ["-t", "list", "table", "inet", "vivarium"]);
  return await list.then(changesIn, () => []);
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

/** Removes the rules that a kernel without CONFIG_NF_CONNTRACK_TIMEOUT refuses. */
export function withoutTimeouts(table: string): string {
  return table.replaceAll(/^.*\bct timeout\b.*\n/gm, "");
}

/**
 * The nft script of the host's table. It adds to sets and never removes, so that a service that starts takes nothing
 * from another, and rewrites chains. Only what is open of the never-ranges is replaced: with two services, no more is
 * open than the last one to start opens. The gateway's address of a slot is reachable over that slot's link only, so a
 * packet to it comes from that slot's machine.
 */
export function hostTable(
  { never, open, resolvers, systemResolvers }: HostNetwork,
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
  set open4 { type ipv4_addr . inet_service; flags interval; }
  set flows { type ipv4_addr; flags dynamic; size 65535; }
  # Flows that have ended, or were silent for two hours, leave the table soon.
  ct timeout guests { protocol tcp; l3proto ip; policy = { established: 7440, time_wait: 10 }; }
  chain begin { }
  chain sources { type filter hook prerouting priority raw; policy accept; }
  chain input { type filter hook input priority filter - 5; policy accept; }
  chain forward { type filter hook forward priority filter - 5; policy accept; }
  chain output { type filter hook output priority filter - 5; policy accept; }
  chain postrouting { type nat hook postrouting priority srcnat; policy accept; }
}
${CHAINS.map((chain) => `flush chain inet vivarium ${chain}`).join("\n")}
${open === undefined ? "" : `flush set inet vivarium open4\n${openElements("inet vivarium", open)}`}
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
    iifname "viv*" ip daddr @never4 meta l4proto != tcp drop
    iifname "viv*" ip daddr @never4 ip daddr . tcp dport != @open4 drop
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
    # Evaluated at each packet, because the host may get an address after this was written. Guests get IPv4 only.
    meta skuid @gateways meta nfproto ipv4 fib daddr type local reject with icmp type admin-prohibited
    meta skuid @gateways ip daddr @never4 meta l4proto != tcp reject with icmp type admin-prohibited
    meta skuid @gateways ip daddr @never4 ip daddr . tcp dport != @open4 reject with icmp type admin-prohibited
  }
  chain postrouting {
    ip saddr ${SLOT_NETWORK} oifname != "viv*" masquerade
  }
}
`;
}

/** The nft statement that fills the set `open4` of a table. */
export function openElements(table: string, open: readonly Opening[]): string {
  const elements = open.map(({ range, port }) => `${range} . ${port}`);
  return elements.length === 0 ? "" : `add element ${table} open4 { ${elements.join(", ")} }`;
}
