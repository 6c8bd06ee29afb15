/**
 * Makes and removes a machine's network namespace. Every guest has the same MAC, address and gateway, and its namespace
 * maps them to the slot's own address. There is no IPv6.
 */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { GUEST_MAC, TAP_NAME } from "../qemu/arguments.ts";
import { run } from "./run.ts";
import type { Slot } from "./slots.ts";

export const GUEST_ADDRESS = "10.200.0.2";
export const GATEWAY_ADDRESS = "10.200.0.1";
export const UPLINK_NAME = "veth0";
const GATEWAY_MAC = "02:00:00:00:00:01";

/** Creates the namespace with its links and nft ruleset, which is in force before a guest can use it. */
export async function createNamespace(slot: Slot, ruleset: string): Promise<void> {
  await run("ip", ["-batch", "-"], {
    input: [
      `netns add ${slot.netns}`,
      `link add ${slot.hostLink} type veth peer name ${UPLINK_NAME} netns ${slot.netns}`,
      `addr add ${slot.hostAddress}/31 dev ${slot.hostLink}`,
      `link set ${slot.hostLink} up`,
    ].join("\n"),
  });
  // Otherwise this end of the link solicits routers, which counts as traffic. A kernel without IPv6 lacks the file.
  await writeFile(`/proc/sys/net/ipv6/conf/${slot.hostLink}/disable_ipv6`, "1").catch(() => {});
  await run("ip", ["netns", "exec", slot.netns, "sh", "-ec", NAMESPACE_SCRIPT], {
    input: [
      `link set lo up`,
      `tuntap add ${TAP_NAME} mode tap user ${slot.uid}`,
      `link set ${TAP_NAME} address ${GATEWAY_MAC} up`,
      `addr add ${GATEWAY_ADDRESS}/30 dev ${TAP_NAME}`,
      `neigh add ${GUEST_ADDRESS} lladdr ${GUEST_MAC} dev ${TAP_NAME} nud permanent`,
      `addr add ${slot.machineAddress}/31 dev ${UPLINK_NAME}`,
      `link set ${UPLINK_NAME} up`,
      `route add default via ${slot.hostAddress}`,
      "===",
      ruleset,
    ].join("\n"),
  });
}

/** Creates a namespace from which nothing can be reached: it has no link but its own loopback, which is down. */
export async function createEmptyNamespace(slot: Slot): Promise<void> {
  await run("ip", ["netns", "add", slot.netns]);
}

/** Shell script that reads `ip -batch` lines up to `===`, then an nft ruleset: one process start for both. */
const NAMESPACE_SCRIPT = `
while IFS= read -r line && [ "$line" != "===" ]; do printf '%s\\n' "$line"; done | ip -batch -
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
nft -f -
# So that closed flows soon stop counting as open.
echo 10 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait
`;

/** Runs nft inside a namespace. */
export async function nftIn(netns: string, args: string[], input = ""): Promise<string> {
  return await run("nsenter", [`--net=/run/netns/${netns}`, "nft", ...args], { input });
}

/** Packet counters of all links in the process's namespace. Undefined if it ended, or its namespace has no tap. */
export function readLinkCounters(pid: number): string | undefined {
  try {
    const counters = readFileSync(`/proc/${pid}/net/dev`, "utf8");
    return counters.includes(`${TAP_NAME}:`) ? counters : undefined;
  } catch {
    return undefined;
  }
}

/** Removes the namespace with its links and rules. Safe to repeat. */
export async function removeNamespace(slot: Slot): Promise<void> {
  const ignored = /Cannot find device|No such file/;
  await run("ip", ["link", "del", slot.hostLink], { ignored });
  await run("ip", ["netns", "del", slot.netns], { ignored });
}
