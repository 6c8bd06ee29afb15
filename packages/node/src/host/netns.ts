/**
 * One network namespace per machine. The guest always has the same MAC, address and gateway; the namespace maps it
 * to the slot's own address (architecture.md section 5). Public internet through NAT; private, metadata and this
 * host's own addresses never; DNS goes to the host's resolver. No IPv6.
 */
import { readFile, writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { GUEST_MAC, TAP_NAME } from "../qemu/arguments.ts";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

const GUEST_ADDRESS = "10.200.0.2";
const GATEWAY_ADDRESS = "10.200.0.1";
const GATEWAY_MAC = "02:00:00:00:00:01";
const SLOT_NETWORK = "10.220.0.0/16";

/** Never reachable from a guest: private, loopback, link-local and metadata, shared, multicast, reserved. */
const NEVER = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "168.63.129.16",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/3",
];

/** What every namespace of this node needs to know about the host. */
export interface HostNetwork {
  resolver: string;
  never: string[];
}

export async function readHostNetwork(): Promise<HostNetwork> {
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter((address) => address.family === "IPv4")
    .map((address) => address.address)
    .filter((address) => !address.startsWith("127.") && !address.startsWith("10.220."));
  return { resolver: await findResolver(), never: [...NEVER, ...own] };
}

/** The first nameserver that is not on loopback, which no other namespace could reach. */
async function findResolver(): Promise<string> {
  for (const file of ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"]) {
    const text = await readFile(file, "utf8").catch(() => "");
    for (const [, address] of text.matchAll(/^\s*nameserver\s+(\d+\.\d+\.\d+\.\d+)/gm)) {
      if (address && !address.startsWith("127.")) return address;
    }
  }
  return "9.9.9.9";
}

/** Forwarding and NAT of the host itself; applied once per start, safe to repeat. */
export async function prepareHostNetwork(): Promise<void> {
  await writeFile("/proc/sys/net/ipv4/ip_forward", "1");
  await run("nft", ["-f", "-"], {
    input: `
table inet vivarium { }
delete table inet vivarium
table inet vivarium {
  chain input {
    type filter hook input priority filter - 5; policy accept;
    iifname "viv*" ct state established,related accept
    iifname "viv*" drop
  }
  chain forward {
    type filter hook forward priority filter - 5; policy accept;
    iifname "viv*" oifname "viv*" drop
    ct state invalid drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${SLOT_NETWORK} oifname != "viv*" masquerade
  }
}
`,
  });
}

export async function createNamespace(slot: Slot, host: HostNetwork): Promise<void> {
  await run("ip", ["-batch", "-"], {
    input: [
      `netns add ${slot.netns}`,
      `link add ${slot.hostLink} type veth peer name veth0 netns ${slot.netns}`,
      `addr add ${slot.hostAddress}/31 dev ${slot.hostLink}`,
      `link set ${slot.hostLink} up`,
    ].join("\n"),
  });
  await run("ip", ["netns", "exec", slot.netns, "sh", "-ec", NAMESPACE_SCRIPT], {
    input: [
      `link set lo up`,
      `tuntap add ${TAP_NAME} mode tap user ${slot.uid}`,
      `link set ${TAP_NAME} address ${GATEWAY_MAC} up`,
      `addr add ${GATEWAY_ADDRESS}/30 dev ${TAP_NAME}`,
      `neigh add ${GUEST_ADDRESS} lladdr ${GUEST_MAC} dev ${TAP_NAME} nud permanent`,
      `addr add ${slot.machineAddress}/31 dev veth0`,
      `link set veth0 up`,
      `route add default via ${slot.hostAddress}`,
      "===",
      ruleset(host),
    ].join("\n"),
  });
}

/** Reads `ip -batch` lines up to `===`, then an nft ruleset, from standard input: one process start for both. */
const NAMESPACE_SCRIPT = `
while IFS= read -r line && [ "$line" != "===" ]; do printf '%s\\n' "$line"; done | ip -batch -
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
nft -f -
`;

function ruleset(host: HostNetwork): string {
  return `
table inet machine {
  set never4 { type ipv4_addr; flags interval; auto-merge; elements = { ${host.never.join(", ")} } }
  chain raw_in {
    type filter hook prerouting priority raw; policy accept;
    iifname "${TAP_NAME}" ether saddr != ${GUEST_MAC} drop
    iifname "${TAP_NAME}" meta nfproto ipv6 drop
    iifname "${TAP_NAME}" ip saddr != ${GUEST_ADDRESS} drop
  }
  chain nat_pre {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${TAP_NAME}" ip daddr ${GATEWAY_ADDRESS} meta l4proto { tcp, udp } th dport 53 dnat ip to ${host.resolver}
  }
  chain input {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    ct state established,related accept
    iifname "${TAP_NAME}" icmp type echo-request limit rate 10/second accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state invalid drop
    ct state established,related accept
    iifname "${TAP_NAME}" ct status dnat limit rate over 200/second burst 400 packets drop
    iifname "${TAP_NAME}" ct status dnat accept
    iifname "${TAP_NAME}" ip daddr @never4 reject with icmp type admin-prohibited
    iifname "${TAP_NAME}" oifname "veth0" accept
  }
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "veth0" ip saddr ${GUEST_ADDRESS} masquerade
  }
}
`;
}

/** Removes the namespace and with it its links and rules. Repeating it is harmless. */
export async function removeNamespace(slot: Slot): Promise<void> {
  await run("ip", ["link", "del", slot.hostLink]).catch(ignoreMissing);
  await run("ip", ["netns", "del", slot.netns]).catch(ignoreMissing);
}

function ignoreMissing(error: Error): void {
  if (!/Cannot find device|No such file/.test(error.message)) throw error;
}
